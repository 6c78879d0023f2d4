"""Whatever a checkpoint holds beside the scaled weights comes out as it went in."""

import json
import shutil
from dataclasses import asdict

import folding
import pytest
import tiny
import torch
from huggingface_hub import constants
from transformers import AutoModelForCausalLM

import longseal
from longseal import Adapter, Folded, fold
from longseal.errors import LongsealError
from longseal.models.fingerprint import fingerprint
from longseal.scales import Scales

CODES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.int8: "I8",
    torch.bool: "BOOL",
}


def write(path, tensors, metadata):
    """A safetensors file whose tensors lie in the given order, aligned or not."""
    entries, body = {"__metadata__": metadata}, b""
    for name, tensor in tensors.items():
        data = tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        entries[name] = {
            "dtype": CODES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [len(body), len(body) + len(data)],
        }
        body += data
    raw = json.dumps(entries).encode()
    raw += b" " * (-len(raw) % 8)  # a header may end in spaces
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + body)


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """A base of mixed dtypes with buffers, empty, single and unaligned tensors, and its adapter."""
    place = tmp_path_factory.mktemp("odd")
    base = tiny.save(place / "base")
    plain = folding.tensors(base)
    tensors = {
        "odd.buffer": torch.arange(3, dtype=torch.int8),
        "odd.flag": torch.tensor([True, False]),
    }
    for name, tensor in plain.items():
        wide = "norm" in name or "layers.2.self_attn" in name
        kind = torch.float32 if wide else torch.bfloat16
        tensors[name] = tensor.to(torch.float64 if "layers.1.self_attn" in name else kind)
        tensors[f"{name}.empty"] = torch.empty(0, 7)
    tensors["odd.single"] = torch.tensor(1.5)
    write(base / "model.safetensors", tensors, {"format": "pt", "made by": "hand, ü"})
    network = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16)
    model = longseal.load(base, dtype="bfloat16", device="cpu")
    adapter = Adapter(tiny.random_scales(model, "channel"), "base", fingerprint(network), {})
    folded = fold(base, adapter, place / "target")
    return base, place / "target", tensors, adapter, folded


def test_only_the_bytes_of_scaled_weights_change(odd):
    base, target, tensors, adapter, _ = odd
    before, after = ((f / "model.safetensors").read_bytes() for f in (base, target))
    scaled = {site.weight for site in adapter.scales.sites}
    entries, start = folding.header(before)
    assert after[:start] == before[:start]
    assert len(after) == len(before)
    for name in tensors:
        first, last = (start + offset for offset in entries[name]["data_offsets"])
        assert (after[first:last] == before[first:last]) is (name not in scaled), name
    odds = [start + entries[name]["data_offsets"][0] for name in scaled]
    assert any(place % 2 for place in odds)


def test_each_tensor_is_multiplied_in_its_own_width_and_rounded_once(odd):
    _, target, tensors, adapter, folded = odd
    entries, start = folding.header((target / "model.safetensors").read_bytes())
    data = (target / "model.safetensors").read_bytes()
    errors, products, largest, dtypes = [], [], [], set()
    for site in adapter.scales.sites:
        weight = tensors[site.weight]
        first, last = (start + offset for offset in entries[site.weight]["data_offsets"])
        after = torch.frombuffer(bytearray(data[first:last]), dtype=weight.dtype).view_as(weight)
        wide = torch.promote_types(weight.dtype, torch.float32)
        exact = weight.to(wide) * adapter.scales.scale(site)
        assert torch.equal(after, exact.to(weight.dtype))
        error = (after.to(wide) - exact).flatten().double()
        errors.append(error)
        products.append(exact.flatten().double())
        largest.append(float(error.abs().max() / exact.abs().max()))
        dtypes.add(weight.dtype)
    assert dtypes == {torch.bfloat16, torch.float32, torch.float64}
    rms = torch.cat(errors).norm() / torch.cat(products).norm()
    assert folded.rounding == pytest.approx(max(largest), rel=1e-6)
    assert folded.rounding_rms == pytest.approx(float(rms), rel=1e-5)


def test_nothing_is_rounded_in_float32(checkpoint, llama, tmp_path):
    folded = fold(checkpoint("llama"), folding.adapter_of(llama), tmp_path / "target")
    assert (folded.rounding, folded.rounding_rms) == (0, 0)


def test_the_record_says_what_was_done(odd):
    _, target, _, adapter, folded = odd
    record = json.loads((target / "longseal.json").read_text())
    assert record["folded"] is True
    assert record["projection"] == "output"
    assert record["base_fingerprint"] == asdict(adapter.base_fingerprint)
    assert (record["rounding"], record["rounding_rms"]) == (folded.rounding, folded.rounding_rms)
    assert record["logit_difference"] is None
    assert Folded.read(target) == folded


def test_an_adapter_without_a_fingerprint_is_folded_unchecked(odd, tmp_path):
    base, target, _, adapter, _ = odd
    fold(base, Adapter(adapter.scales, "", None), tmp_path / "target")
    assert folding.files(tmp_path / "target").keys() == folding.files(target).keys()
    shard = "model.safetensors"
    assert (tmp_path / "target" / shard).read_bytes() == (target / shard).read_bytes()
    assert (
        json.loads((tmp_path / "target" / "longseal.json").read_text())["base_fingerprint"] is None
    )


def test_files_that_transformers_would_not_write_again(checkpoint, llama, tmp_path):
    source = shutil.copytree(checkpoint("llama"), tmp_path / "source")
    strict = {"do_sample": False, "temperature": 0.3, "top_p": 0.2}  # save_pretrained refuses these
    (source / "generation_config.json").write_text(json.dumps(strict))
    (source / "chat_template.jinja").write_text("{{ messages }}\r\n")
    (source / "modeling_own.py").write_text("x = 1\n")
    (source / "more" / "deeper").mkdir(parents=True)
    (source / "more" / "adapter_model.safetensors").write_bytes(b"not this checkpoint's")
    (source / "empty").mkdir()
    fold(source, folding.adapter_of(llama), tmp_path / "target")
    before, after = folding.files(source), folding.files(tmp_path / "target")
    assert after.keys() - before.keys() == {"longseal.json"}
    assert before.keys() <= after.keys()
    changed = {name for name in before if before[name] != after[name]}
    assert all(name.startswith("model-") for name in changed)
    assert (tmp_path / "target" / "empty").is_dir()
    assert (tmp_path / "target" / "more" / "deeper").is_dir()


def test_hidden_files_and_weights_of_other_formats_are_left_behind(checkpoint, llama, tmp_path):
    source = shutil.copytree(checkpoint("llama"), tmp_path / "source")
    for name in (".gitattributes", ".cache/x", "pytorch_model.bin", "more/model.onnx", "a.gguf"):
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_text("x")
    fold(source, folding.adapter_of(llama), tmp_path / "target")
    names = {*folding.files(checkpoint("llama")), "longseal.json"}
    assert folding.files(tmp_path / "target").keys() == names


@pytest.fixture
def cached(checkpoint, tmp_path, monkeypatch):
    """The hub's cache with the base in it: a snapshot is links to blobs."""
    cache = tmp_path / "hub"
    home = cache / "models--someone--llama"
    snapshot = home / "snapshots" / ("0" * 40)
    for folder in (home / "refs", home / "blobs", snapshot):
        folder.mkdir(parents=True)
    (home / "refs" / "main").write_text("0" * 40)
    for number, path in enumerate(sorted(checkpoint("llama").iterdir())):
        shutil.copy(path, home / "blobs" / str(number))
        (snapshot / path.name).symlink_to(f"../../blobs/{number}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    return snapshot


def test_a_model_of_the_hub_becomes_real_files(cached, llama, tmp_path):
    stale = cached / "consolidated.safetensors"  # another program's; nobody's to move away
    stale.write_bytes(b"x")
    fold("someone/llama", folding.adapter_of(llama), tmp_path / "target")
    made = list((tmp_path / "target").iterdir())
    assert not any(path.is_symlink() for path in made)
    assert {p.name for p in made} == {p.name for p in cached.iterdir()} - {stale.name} | {
        "longseal.json"
    }


def test_a_model_of_the_hub_that_is_not_whole_here(cached, llama, tmp_path):
    shard = min(cached.glob("*.safetensors"))
    shard.unlink()
    with pytest.raises(LongsealError, match=shard.name):
        fold("someone/llama", folding.adapter_of(llama), tmp_path / "target")
    with pytest.raises(LongsealError, match="cannot be fetched"):
        fold("someone/else", folding.adapter_of(llama), tmp_path / "target")


def test_the_hub_is_asked_for_the_checkpoint_s_files_alone(
    checkpoint, llama, tmp_path, monkeypatch
):
    """Neither other formats nor other sets of weights are fetched."""
    from fnmatch import fnmatch

    from longseal.fold import source

    hub = shutil.copytree(checkpoint("llama"), tmp_path / ("1" * 40))
    for name in (
        "consolidated.safetensors",
        "model.fp16.safetensors",
        "original/params.json",
        "a.bin",
    ):
        (hub / name).parent.mkdir(exist_ok=True)
        (hub / name).write_bytes(b"x")
    fetched = set()

    def download(name, revision=None, allow_patterns="*", ignore_patterns=()):
        assert (name, revision) in {("some/model", None), ("some/model", "1" * 40)}
        allowed = [allow_patterns] if isinstance(allow_patterns, str) else allow_patterns
        for path in folding.files(hub):
            wanted = any(fnmatch(path, pattern) for pattern in allowed)
            if wanted and not any(fnmatch(path, pattern) for pattern in ignore_patterns):
                fetched.add(path)
        return str(hub)

    monkeypatch.setattr(source, "snapshot_download", download)
    source.files_of("some/model")
    assert fetched == folding.files(checkpoint("llama")).keys()


# The check by logits.


def test_a_path_is_folded_without_loading_a_model(checkpoint, llama, tmp_path, monkeypatch):
    adapter = folding.adapter_of(llama)
    monkeypatch.setattr("longseal.models.load.AutoModelForCausalLM", None)
    folded = fold(checkpoint("llama"), adapter, tmp_path / "target")
    assert folded.logit_difference is None


def test_a_path_is_checked_where_that_is_asked_for(checkpoint, llama, tmp_path):
    adapter = folding.adapter_of(llama)
    folded = fold(checkpoint("llama"), adapter, tmp_path / "target", check=True)
    assert 0 <= folded.logit_difference < 1e-4
    assert fold(llama, adapter, tmp_path / "other", check=False).logit_difference is None


def test_a_fold_that_does_not_give_the_hooked_logits_is_not_kept(llama, tmp_path, monkeypatch):
    from longseal.fold import plan

    monkeypatch.setattr(plan, "multiply", lambda *_: None)
    with pytest.raises(LongsealError, match="logits differ"):
        fold(llama, folding.adapter_of(llama).times(5), tmp_path / "target")
    assert folding.tree(tmp_path) == []


def test_a_record_of_an_earlier_version_can_be_read(tmp_path):
    record = {"folded": True, "rounding": 0.001, "logit_difference": 0.02}
    (tmp_path / "longseal.json").write_text(json.dumps(record))
    assert Folded.read(tmp_path) == Folded(tmp_path, "output", 0.001, None, 0.02)
    (tmp_path / "longseal.json").write_text("{}")
    with pytest.raises(LongsealError, match="no folded checkpoint"):
        Folded.read(tmp_path)


def test_scales_of_one_change_nothing_but_the_record(checkpoint, llama, tmp_path):
    adapter = Adapter.of(llama, Scales.zeros("head", llama.sites), {})
    fold(checkpoint("llama"), adapter, tmp_path / "target")
    after = folding.files(tmp_path / "target")
    del after["longseal.json"]
    assert after == folding.files(checkpoint("llama"))
