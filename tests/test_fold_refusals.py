"""What cannot be folded is refused in one line, before anything is written."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import folding
import pytest
import tiny
import torch
from safetensors.torch import save_file

import longseal
from longseal import fold
from longseal.errors import LongsealError

INDEX = "model.safetensors.index.json"


@pytest.fixture
def place(tmp_path, checkpoint, llama):
    """A copy of the base and its adapter, in a folder where nothing else may appear."""
    shutil.copytree(checkpoint("llama"), tmp_path / "base")
    folding.adapter_of(llama).save(tmp_path / "adapter")
    return tmp_path


def refuses(place, match, base=None, target=None, adapter=None, **options):
    before = folding.tree(place)
    with pytest.raises(LongsealError, match=match) as refused:
        fold(
            base or place / "base",
            adapter or place / "adapter",
            target or place / "target",
            **options,
        )
    assert len(str(refused.value).splitlines()) == 1
    assert folding.tree(place) == before


def shards(place):
    return sorted((place / "base").glob("*.safetensors"))


def edit_index(place, change):
    path = place / "base" / INDEX
    index = json.loads(path.read_text())
    change(index["weight_map"])
    path.write_text(json.dumps(index))


def edit_header(path, change):
    header, start = folding.header(path.read_bytes())
    body = path.read_bytes()[start:]
    change(header)
    raw = json.dumps(header).encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + body)


# The target.


@pytest.mark.parametrize("inside", ["new", "new/deeper", "../base/new", "../link/new"])
def test_a_target_inside_the_base(place, inside):
    (place / "link").symlink_to("base")
    refuses(place, "inside the model", target=place / "base" / inside)
    refuses(place, "inside the model", base=place / "link", target=place / "base" / inside)


def test_a_target_that_a_link_puts_inside_the_base(place):
    (place / "link").symlink_to("base", target_is_directory=True)
    refuses(place, "inside the model", target=place / "link" / "new")


def test_a_target_that_is_a_link_to_nothing(place):
    (place / "target").symlink_to("nowhere")
    refuses(place, "exists already")
    assert (place / "target").is_symlink()


def test_a_base_that_lies_where_the_target_is_made(place):
    source = shutil.copytree(place / "base", place / ".target.partial" / "base")
    refuses(place, "name another folder", base=source)


def test_a_disk_that_is_too_small(place, monkeypatch):
    size = sum(path.stat().st_size for path in (place / "base").iterdir())
    for free in (0, size - 1):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: SimpleNamespace(free=free))
        refuses(place, "GB are free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=size))
    fold(place / "base", place / "adapter", place / "target")


def test_a_target_that_appears_meanwhile_is_left_alone(place, monkeypatch):
    from longseal.fold import plan

    def copy(source, target):
        (place / "target").mkdir(exist_ok=True)
        (place / "target" / "precious").write_text("x")
        shutil.copyfile(source, target)

    monkeypatch.setattr(plan, "copy_file", copy)
    with pytest.raises(LongsealError, match="exists already"):
        fold(place / "base", place / "adapter", place / "target")
    assert {path.name for path in place.iterdir()} == {"base", "adapter", "target"}
    assert [path.name for path in (place / "target").iterdir()] == ["precious"]


# Damaged shards and indices.


def test_a_shard_that_is_missing_or_cut_off(place):
    shard = shards(place)[1]
    whole = shard.read_bytes()
    for kept in (0, 7, 100, len(whole) - 1):
        shard.write_bytes(whole[:kept])
        refuses(place, f"{shard.name} is not a whole safetensors file")
    shard.unlink()
    refuses(place, f"{shard.name} cannot be read")


def test_bytes_that_belong_to_no_tensor(place):
    shard = shards(place)[1]
    shard.write_bytes(shard.read_bytes() + b"more")
    refuses(place, "4 bytes at its end")


def test_a_header_that_puts_tensors_where_they_cannot_be(place):
    shard = max(shards(place), key=lambda path: len(folding.header(path.read_bytes())[0]))
    whole = shard.read_bytes()

    def spans(header):
        entries = [entry for name, entry in header.items() if name != "__metadata__"]
        return sorted(entries, key=lambda entry: entry["data_offsets"])

    def overlapping(header):
        one, other = spans(header)[:2]
        size = other["data_offsets"][1] - other["data_offsets"][0]
        other["data_offsets"] = [one["data_offsets"][0], one["data_offsets"][0] + size]

    def beyond(header):
        last = spans(header)[-1]
        last["data_offsets"] = [offset + 10**9 for offset in last["data_offsets"]]

    def negative(header):
        spans(header)[0]["data_offsets"] = [-4, spans(header)[0]["data_offsets"][1] - 4]

    def reshaped(header):
        spans(header)[0]["shape"][0] += 1

    for change, words in (
        (overlapping, "overlaps"),
        (beyond, "gap"),
        (negative, "overlaps the header"),
        (reshaped, "not its shape's size"),
        (lambda header: spans(header)[0].pop("shape"), "shape"),
        (lambda header: header.update(more=[1]), "whole safetensors"),
    ):
        shard.write_bytes(whole)
        edit_header(shard, change)
        refuses(place, words)


def test_a_header_that_names_a_tensor_twice(place):
    shard = shards(place)[1]
    header, start = folding.header(shard.read_bytes())
    name = next(name for name in header if name != "__metadata__")
    raw = json.dumps(header)[:-1] + f", {json.dumps(name)}: {json.dumps(header[name])}}}"
    body = shard.read_bytes()[start:]
    shard.write_bytes(len(raw).to_bytes(8, "little") + raw.encode() + body)
    refuses(place, f"{name} twice")


def test_an_index_that_does_not_agree_with_the_shards(place):
    whole = (place / "base" / INDEX).read_text()
    name = "model.layers.0.self_attn.o_proj.weight"
    other = next(s.name for s in shards(place) if s.name != json.loads(whole)["weight_map"][name])
    for change, words in (
        (lambda named: named.update({"model.more": other}), f"model.more is in {other}"),
        (lambda named: named.update({name: other}), f"{name} is in {other}"),
        (lambda named: named.update({"model.more": "../elsewhere.safetensors"}), "elsewhere"),
        (lambda named: named.update({"model.more": 7}), "not the name of a file"),
        (lambda named: named.clear(), "no weight_map"),
    ):
        (place / "base" / INDEX).write_text(whole)
        edit_index(place, change)
        refuses(place, words)


def test_a_tensor_in_two_shards(place):
    one, other = shards(place)[:2]
    repeated, tensor = next(iter(folding.read(one).items()))
    save_file(folding.read(other) | {repeated: tensor}, other, {"format": "pt"})
    refuses(place, f"{repeated} twice, in {one.name} and in {other.name}")


# Weights that would stay unfolded.


@pytest.mark.parametrize(
    "name", ["consolidated.safetensors", "model.safetensors", "a.b.safetensors"]
)
def test_a_second_set_beside_the_index(place, name):
    shutil.copy(shards(place)[0], place / "base" / name)
    refuses(place, f"{name}. Move them away")


def test_a_second_set_beside_a_single_file(tmp_path):
    base = tiny.save(tmp_path / "base")
    model = longseal.load(base, device="cpu")
    shutil.copy(base / "model.safetensors", base / "model.fp16.safetensors")
    refuses(tmp_path, "model.fp16.safetensors", adapter=folding.adapter_of(model))


def test_many_stale_files_are_not_all_listed(place):
    for number in range(9):
        shutil.copy(shards(place)[0], place / "base" / f"stale-{number}.safetensors")
    refuses(place, "stale-0.safetensors, .*stale-2.safetensors and 6 more")


# Other bases.


def test_a_folder_that_is_folded_already(place):
    fold(place / "base", place / "adapter", place / "once")
    refuses(place, "folded already", base=place / "once")
    (place / "once" / "longseal.json").write_text('{"kind": "head"}')
    refuses(place, "longseal.json", base=place / "once")
    (place / "once" / "longseal.json").write_text("{")
    refuses(place, "not JSON", base=place / "once")


def test_a_base_with_other_weights_is_refused_by_name(place, checkpoint, loaded):
    refuses(
        place, "model.embed_tokens.weight holds other", adapter=folding.adapter_of(loaded("other"))
    )
    refuses(place, "another base", base=checkpoint("gpt2"))


def test_one_other_value_in_one_tensor(place):
    shard = next(s for s in shards(place) if "model.norm.weight" in folding.read(s))
    tensors = folding.read(shard)
    tensors["model.norm.weight"] = tensors["model.norm.weight"] * 1.5
    save_file(tensors, shard, {"format": "pt"})
    refuses(place, "model.norm.weight holds other weights")


def untie(place, embedding):
    """Give the base an output embedding of its own."""
    shard = shards(place)[0]
    save_file(folding.read(shard) | {"lm_head.weight": embedding}, shard, {"format": "pt"})
    edit_index(place, lambda named: named.update({"lm_head.weight": shard.name}))


def test_a_base_that_has_an_output_embedding_and_the_adapter_s_had_none(place):
    embedding = folding.tensors(place / "base")["model.embed_tokens.weight"]
    untie(place, embedding * 1.5)
    refuses(place, "lm_head.weight is here, and that base had no such parameter")


def test_tied_embeddings_that_are_stored_twice_are_one(place):
    embedding = folding.tensors(place / "base")["model.embed_tokens.weight"]
    untie(place, embedding.clone())
    fold(place / "base", place / "adapter", place / "target")
    after = folding.tensors(place / "target")
    assert torch.equal(after["lm_head.weight"], embedding)


def test_a_base_that_lacks_an_output_embedding_that_the_adapter_s_had(tmp_path, loaded, checkpoint):
    adapter = folding.adapter_of(loaded("untied"))
    base = shutil.copytree(checkpoint("untied"), tmp_path / "base")
    config = json.loads((base / "config.json").read_text())
    (base / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": True}))
    for shard in base.glob("*.safetensors"):
        kept = {k: v for k, v in folding.read(shard).items() if k != "lm_head.weight"}
        shard.unlink()
        if kept:
            save_file(kept, shard, {"format": "pt"})
    edit_index(tmp_path, lambda named: named.pop("lm_head.weight"))
    refuses(tmp_path, "another base.*lm_head.weight", adapter=adapter)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.float8_e4m3fn])
def test_a_quantised_projection(place, dtype):
    name = "model.layers.1.self_attn.o_proj.weight"
    shard = next(s for s in shards(place) if name in folding.read(s))
    tensors = folding.read(shard)
    tensors[name] = tensors[name].to(dtype)
    save_file(tensors, shard, {"format": "pt"})
    refuses(place, f"{name} is quantised")


def test_a_checkpoint_whose_weights_are_packed(place):
    config = json.loads((place / "base" / "config.json").read_text())
    quantised = {"quant_method": "gptq", "bits": 4}
    (place / "base" / "config.json").write_text(
        json.dumps(config | {"quantization_config": quantised})
    )
    for shard in shards(place):
        packed = {
            k.replace("proj.weight", "proj.qweight"): v for k, v in folding.read(shard).items()
        }
        save_file(packed, shard, {"format": "pt"})
    edit_index(
        place,
        lambda named: [
            named.update({k.replace("proj.weight", "proj.qweight"): named.pop(k)})
            for k in list(named)
        ],
    )
    refuses(place, "o_proj.weight: the checkpoint is quantised .gptq.")


def test_products_that_float16_cannot_hold(tmp_path):
    base = tiny.save(tmp_path / "base", dtype=torch.float16)
    model = longseal.load(base, device="cpu")
    adapter = folding.adapter_of(model)
    huge = adapter.times(1e7)
    refuses(tmp_path, "no finite numbers in float16", adapter=huge)


# What is no checkpoint, or cannot be copied.


def test_what_is_no_model(place):
    refuses(place, "does not exist", base=place / "nothing")
    refuses(place, "neither a folder nor", base=place / "base" / "config.json")
    (place / "base" / "config.json").unlink()
    refuses(place, "no config.json")


def test_links_that_lead_nowhere_or_back(place):
    link = place / "base" / "broken"
    link.symlink_to("nowhere")
    refuses(place, "broken cannot be copied")
    link.unlink()
    (place / "base" / "more").mkdir()
    (place / "base" / "more" / "back").symlink_to(place / "base")
    refuses(place, "back cannot be copied")


def test_a_projection_that_is_not_known(place):
    refuses(place, "say output or value", projection="key")


def test_folding_that_fails_on_the_way_leaves_nothing(place, monkeypatch):
    from longseal.fold import plan

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(plan, "multiply", full)
    refuses(place, "No space left on device")


def test_the_remains_of_a_killed_fold_are_no_hindrance(place):
    (place / ".target.partial").mkdir()
    (place / ".target.partial" / "half").write_text("x")
    fold(place / "base", place / "adapter", place / "target")
    assert {path.name for path in place.iterdir()} == {"base", "adapter", "target"}
    assert not Path(place, "target", "half").exists()
