"""A LoRA or DoRA adapter is PEFT's own on disk; PEFT and our folding make one model of it."""

import json
from dataclasses import replace

import folding
import pytest
import tiny
import torch
from low_rank import KINDS, NAMES, adapter_of, attached, close, fresh, logits
from peft import PeftModel
from safetensors.torch import load_file, save_file

import longseal
from longseal import LongsealError, fold
from longseal.fold import check_foldable
from longseal.lora import LoraAdapter, read_adapter
from longseal.models.fingerprint import fingerprint
from longseal.scales.hooks import scaled_by


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_peft_and_the_folded_model_say_what_the_attached_one_says(
    loaded, checkpoint, tmp_path, name, kind
):
    model = loaded(name)
    adapter = adapter_of(model, kind)
    expected = attached(model, adapter)
    assert (expected - logits(model.network)).abs().max() > 0.1
    adapter.save(tmp_path / "adapter")
    close(attached(model, LoraAdapter.load(tmp_path / "adapter")), expected)

    network = PeftModel.from_pretrained(fresh(checkpoint(name)), tmp_path / "adapter").eval()
    close(logits(network), expected)
    close(logits(network.merge_and_unload()), expected)

    folded = fold(checkpoint(name), tmp_path / "adapter", tmp_path / "folded", check=True)
    assert folded.projection is None
    assert folded.logit_difference < 1e-4
    close(logits(fresh(tmp_path / "folded")), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_folding_rewrites_the_adapted_weights_and_rounds_once(checkpoint, tmp_path, kind):
    base = tiny.save(tmp_path / "base", dtype=torch.bfloat16, shard="20KB")
    (base / "note.md").write_text("kept")
    model = longseal.load(base, device="cpu")
    adapter = adapter_of(model, kind)
    adapter.save(tmp_path / "adapter")
    folded = fold(base, tmp_path / "adapter", tmp_path / "folded")

    wide = PeftModel.from_pretrained(fresh(base), tmp_path / "adapter").merge_and_unload()
    before, after = folding.tensors(base), folding.tensors(tmp_path / "folded")
    adapted = {f"{module}.weight" for module in adapter.updates.modules}
    assert {name for name in before if not torch.equal(before[name], after[name])} == adapted
    for name in adapted:
        assert torch.equal(after[name], wide.get_parameter(name).bfloat16())
    assert 0 < folded.rounding_rms < folded.rounding < 2**-8
    names = [name for name in folding.tree(base) if not name.endswith(".safetensors")]
    files, copied = folding.files(base), folding.files(tmp_path / "folded")
    assert all(files[name] == copied[name] for name in names)
    assert copied.keys() - files.keys() == {"longseal.json"}
    with pytest.raises(LongsealError, match="folded already"):
        fold(tmp_path / "folded", tmp_path / "adapter", tmp_path / "twice")
    with pytest.raises(LongsealError, match="folded into this model already"):
        adapter.check_base(longseal.load(tmp_path / "folded", device="cpu"))


def test_a_loaded_gguf_is_merged_too_and_stays_as_it_is(llama, checkpoint, tmp_path):
    """A loaded model without a folder of its own: as a GGUF's is, once it is loaded."""
    (tmp_path / "model.gguf").write_bytes(b"")
    model = replace(llama, source=str(tmp_path / "model.gguf"))
    adapter, before = adapter_of(llama, "lora"), logits(llama.network)
    fold(model, adapter, tmp_path / "target")
    close(logits(fresh(tmp_path / "target")), attached(llama, adapter))
    assert torch.equal(logits(llama.network), before)


def test_what_is_not_the_base_is_refused(loaded, checkpoint, tmp_path):
    adapter = adapter_of(loaded("llama"), "lora")
    for name in ("other", "gpt2"):
        with pytest.raises(LongsealError, match="made for another base"):
            attached(loaded(name), adapter)
        with pytest.raises(LongsealError, match="made for another base"):
            fold(checkpoint(name), adapter, tmp_path / "folded")
    with pytest.raises(LongsealError, match="leave --projection"):
        fold(checkpoint("llama"), adapter, tmp_path / "folded", projection="value")
    assert not any(tmp_path.iterdir())


def test_one_thing_is_attached_at_a_time(llama):
    adapter = adapter_of(llama, "lora")
    scales = tiny.random_scales(llama, "head")
    with adapter.attached(llama), pytest.raises(LongsealError, match="PEFT adapter is attached"):
        attached(llama, adapter)
    with scales.attached(llama.network), pytest.raises(LongsealError, match="scales are attached"):
        attached(llama, adapter)


def test_results_of_different_adapters_are_told_apart_and_the_base_is_one(llama):
    base, seen = fingerprint(llama.network), {scaled_by(llama.network)}
    for kind, seed in (("lora", 3), ("lora", 4), ("dora", 3)):
        adapter = adapter_of(llama, kind, seed)
        hashes = set()
        for _ in range(2):
            with adapter.attached(llama):
                hashes.add(scaled_by(llama.network))
                assert fingerprint(llama.network) == base
                adapter.check_base(llama)
        assert len(hashes) == 1
        seen |= hashes
    assert len(seen) == 4
    assert "" in seen


def test_a_model_is_judged_foldable_before_it_is_tuned(checkpoint, tmp_path):
    folder = tiny.save(tmp_path / "base")
    model = longseal.load(folder, device="cpu")
    check_foldable(model, "lora")
    path = folder / "model.safetensors"
    tensors = load_file(path)
    name = "model.layers.1.self_attn.k_proj.weight"
    tensors[name] = tensors[name].to(torch.int8)
    save_file(tensors, path, {"format": "pt"})
    check_foldable(model, "head")
    with pytest.raises(LongsealError, match=r"k_proj\.weight is quantised"):
        check_foldable(model, "dora")


def test_what_is_saved_is_read_again(llama, tmp_path):
    for kind in KINDS:
        adapter = adapter_of(llama, kind)
        adapter.save(tmp_path / "adapter")  # the second replaces the first
        again = read_adapter(tmp_path / "adapter")
        assert isinstance(again, LoraAdapter)
        assert (again.kind, again.base) == (kind, llama.source)
        assert again.record["task"] == "lines"
        assert again.base_fingerprint == adapter.base_fingerprint
        for name, value in adapter.updates.tensors.items():
            assert torch.equal(again.updates.tensors[name], value)
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    settings = {name: config[name] for name in ("peft_type", "r", "lora_alpha", "use_dora")}
    assert settings == {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "use_dora": True}
    assert set(config["target_modules"]) == set(adapter.updates.modules)
    tiny.adapter_of(llama, 0).save(tmp_path / "scales")
    assert isinstance(read_adapter(tmp_path / "scales"), longseal.Adapter)
    (tmp_path / "file").mkdir()
    (tmp_path / "file" / "notes.txt").write_text("mine")
    with pytest.raises(LongsealError, match="no adapter"):
        adapter.save(tmp_path / "file")


def _edit(name, change):
    def spoil(folder):
        content = json.loads((folder / name).read_text())
        change(content)
        (folder / name).write_text(json.dumps(content))

    return spoil


def _tensors(change):
    def spoil(folder):
        path = folder / "adapter_model.safetensors"
        tensors = load_file(path)
        change(tensors, next(iter(tensors)))
        save_file(tensors, path)

    return spoil


DAMAGED = {
    "no weights": lambda folder: (folder / "adapter_model.safetensors").unlink(),
    "cut off": lambda folder: (folder / "adapter_model.safetensors").write_bytes(b"1234567890"),
    "a tensor less": _tensors(lambda tensors, name: tensors.pop(name)),
    "a tensor more": _tensors(lambda tensors, name: tensors.update(more=torch.ones(2))),
    "a shape": _tensors(lambda tensors, name: tensors.update({name: torch.ones(3, 48)})),
    "not a number": _tensors(lambda tensors, name: tensors[name].fill_(float("nan"))),
    "the rank": _edit("adapter_config.json", lambda config: config.update(r=5)),
    "another scaling": _edit("adapter_config.json", lambda config: config.update(use_rslora=True)),
    "another kind": _edit("adapter_config.json", lambda config: config.update(use_dora=True)),
    "a module": _edit("longseal.json", lambda record: record["modules"].pop()),
    "no fingerprint": _edit("longseal.json", lambda record: record.pop("base_fingerprint")),
}


@pytest.mark.parametrize("spoil", DAMAGED.values(), ids=DAMAGED.keys())
def test_what_is_damaged_is_refused_in_a_line(llama, tmp_path, spoil):
    adapter_of(llama, "lora").save(tmp_path / "adapter")
    spoil(tmp_path / "adapter")
    with pytest.raises(LongsealError) as refused:
        read_adapter(tmp_path / "adapter")
    assert len(str(refused.value).splitlines()) == 1
