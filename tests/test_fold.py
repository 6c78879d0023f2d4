"""A folded checkpoint is the base's, byte for byte, but for the scaled weights, which are exact."""

import json
import shutil
from importlib import import_module
from pathlib import Path

import pytest
import tiny
import torch
from folding import adapter_of, files, header, tensors, tree
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

import longseal
from longseal import Adapter, fold
from longseal.errors import LongsealError

NAMES = ["llama", "untied", "gpt2"]
KINDS = ["head", "channel"]
ROW = torch.tensor([tiny.tokens(50)])


@torch.no_grad()
def logits(network):
    return network(input_ids=ROW).logits


@pytest.fixture(scope="module", params=[(n, k) for n in NAMES for k in KINDS], ids="-".join)
def case(request, loaded, checkpoint, tmp_path_factory):
    """Base folder, folded folder, the scales and the hooked model's logits."""
    name, kind = request.param
    model = loaded(name)
    adapter = adapter_of(model, kind)
    with adapter.attached(model):
        hooked = logits(model.network)
    target = tmp_path_factory.mktemp("folded") / "target"
    fold(model, adapter, target)
    return checkpoint(name), target, adapter.scales, hooked


def test_the_bases_have_what_could_go_wrong(checkpoint):
    for name in NAMES:
        assert len(list(checkpoint(name).glob("*.safetensors"))) > 2
    assert "model.layers.0.self_attn.o_proj.bias" in tensors(checkpoint("llama"))
    assert "lm_head.weight" not in tensors(checkpoint("llama"))
    assert "lm_head.weight" in tensors(checkpoint("untied"))


def test_the_reloaded_model_says_what_the_hooked_one_says(case):
    source, target, _, hooked = case
    network = AutoModelForCausalLM.from_pretrained(target)
    torch.testing.assert_close(logits(network), hooked, rtol=1e-5, atol=1e-5)
    assert (hooked - logits(AutoModelForCausalLM.from_pretrained(source))).abs().max() > 0.1


def test_folded_weights_are_the_base_s_times_the_scale(case):
    source, target, scales, _ = case
    before, after = tensors(source), tensors(target)
    for name, delta in scales.deltas.items():
        weight, folded = before[f"{name}.weight"], after[f"{name}.weight"]
        rows = "c_proj" in name
        inputs = weight.shape[0 if rows else 1]
        scale = 1 + delta.repeat_interleave(inputs // delta.numel(), 1).flatten()
        assert torch.equal(folded, weight * (scale[:, None] if rows else scale))
        assert not torch.equal(folded, weight)


def test_every_other_byte_of_the_weights_stays(case):
    source, target, scales, _ = case
    scaled = {f"{name}.weight" for name in scales.deltas}
    found = set()
    for path in source.glob("*.safetensors"):
        before, after = path.read_bytes(), (target / path.name).read_bytes()
        entries, start = header(before)
        assert after[:start] == before[:start]
        assert len(after) == len(before)
        for name, entry in entries.items():
            first, last = (start + n for n in entry.get("data_offsets", (0, 0)))
            found.add(name)
            assert (after[first:last] != before[first:last]) == (name in scaled), name
    assert scaled < found


def test_no_other_file_changes_or_goes_missing(case):
    source, target, *_ = case
    before, after = files(source), files(target)
    record = json.loads(after.pop("longseal.json"))
    assert record["folded"] is True
    assert record["base"] == str(source)
    assert before.keys() == after.keys()
    assert {"config.json", "generation_config.json", "tokenizer.json"} < before.keys()
    assert "model.safetensors.index.json" in before
    for name in before:
        if not name.endswith(".safetensors"):
            assert after[name] == before[name], name


def test_everything_else_beside_the_weights_comes_along(loaded, checkpoint, tmp_path):
    source = shutil.copytree(checkpoint("llama"), tmp_path / "source")
    GenerationConfig(do_sample=True, temperature=0.3).save_pretrained(source)
    (source / "README.md").write_text("words", "utf-8")
    (source / "modeling_own.py").write_text("x = 1\n", "utf-8")
    (source / "more").mkdir()
    (source / "more" / "template.jinja").write_text("{{ x }}", "utf-8")
    model = longseal.load(source, device="cpu")
    fold(model, adapter_of(model), tmp_path / "target")
    before, after = files(source), files(tmp_path / "target")
    del after["longseal.json"]
    assert before.keys() == after.keys()
    kept = [name for name in before if not name.endswith(".safetensors")]
    assert all(before[name] == after[name] for name in kept)


def test_weights_in_other_formats_are_left_behind(loaded, checkpoint, tmp_path):
    source = shutil.copytree(checkpoint("llama"), tmp_path / "source")
    for stale in ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.gguf", "a.onnx"):
        (source / stale).write_bytes(b"weights that were not folded")
    model = longseal.load(source, device="cpu")
    fold(model, adapter_of(model), tmp_path / "target")
    assert files(tmp_path / "target").keys() == {*files(checkpoint("llama")), "longseal.json"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_sixteen_bit_weights_are_multiplied_in_float32_and_rounded_once(tmp_path, dtype, kind):
    source = tiny.save(tmp_path / "base", dtype=getattr(torch, dtype), shard="10KB")
    model = longseal.load(source, device="cpu")
    adapter = adapter_of(model, kind)
    folded = fold(model, adapter, tmp_path / "target")
    before, after = tensors(source), tensors(tmp_path / "target")
    errors = []
    for name, delta in adapter.scales.deltas.items():
        scale = 1 + delta.repeat_interleave(72 // delta.numel(), 1).flatten()
        product = before[f"{name}.weight"].float() * scale
        assert torch.equal(after[f"{name}.weight"], product.to(getattr(torch, dtype)))
        error = (after[f"{name}.weight"].float() - product).abs().max() / product.abs().max()
        errors.append(error.item())
    assert folded.rounding == pytest.approx(max(errors))
    assert all(tensor.dtype == getattr(torch, dtype) for tensor in after.values())


def test_the_outcome_says_how_far_folded_and_hooked_logits_are_apart(case):
    target = case[1]
    folded = longseal.Folded.read(target)
    assert folded.path == target
    assert folded.rounding == pytest.approx(0, abs=1e-7)
    assert 0 <= folded.logit_difference < 1e-4


def test_paths_fold_as_a_loaded_model_does(checkpoint, llama, tmp_path):
    adapter = adapter_of(llama)
    adapter.save(tmp_path / "adapter")
    fold(llama, adapter, tmp_path / "one")
    fold(checkpoint("llama"), tmp_path / "adapter", tmp_path / "two")
    one, two = tensors(tmp_path / "one"), tensors(tmp_path / "two")
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_the_base_is_not_touched(checkpoint, llama, tmp_path):
    before = files(checkpoint("llama"))
    fold(llama, adapter_of(llama), tmp_path / "target")
    assert files(checkpoint("llama")) == before


def test_a_base_in_bfloat16_takes_an_adapter_that_was_tuned_in_float32(tmp_path):
    source = tiny.save(tmp_path / "base", dtype=torch.bfloat16)
    wide = longseal.load(source, dtype="float32", device="cpu")
    fold(source, adapter_of(wide), tmp_path / "target")
    assert {t.dtype for t in tensors(tmp_path / "target").values()} == {torch.bfloat16}


def test_the_folded_model_answers_with_its_own_tokenizer(case):
    source, target, *_ = case
    text = [{"role": "user", "content": "Where does it stand?"}]
    before, after = (AutoTokenizer.from_pretrained(place) for place in (source, target))
    rendered = before.apply_chat_template(text, add_generation_prompt=True, tokenize=False)
    assert after.apply_chat_template(text, add_generation_prompt=True, tokenize=False) == rendered


# Refusals: each in one line, and nothing left behind.


@pytest.fixture
def place(tmp_path, checkpoint):
    """A copy of the base and its adapter, in a folder where nothing else may appear."""
    source = shutil.copytree(checkpoint("llama"), tmp_path / "base")
    adapter_of(longseal.load(source, device="cpu")).save(tmp_path / "adapter")
    return tmp_path


def refuses(place, base, match, adapter=None, target=None):
    before = tree(place)
    with pytest.raises(LongsealError, match=match) as refused:
        fold(base, adapter or place / "adapter", target or place / "target")
    assert len(str(refused.value).splitlines()) == 1
    assert tree(place) == before


@pytest.fixture(params=["from a path", "from a loaded model"])
def base(request, place):
    """The base as a user may give it."""
    folder = place / "base"
    return folder if request.param == "from a path" else longseal.load(folder, device="cpu")


def test_a_target_that_exists_is_refused(place, base):
    (place / "target").mkdir()
    (place / "target" / "precious.txt").write_text("x")
    refuses(place, base, "exists")
    (place / "file").write_text("x")
    refuses(place, base, "exists", target=place / "file")


@pytest.mark.parametrize("inside", ["new", "new/deeper", "../base/new"])
def test_a_target_inside_the_base_is_refused(place, base, inside):
    refuses(place, base, "inside", target=place / "base" / inside)


def test_an_adapter_of_another_base_is_refused(place, base, loaded):
    refuses(place, base, "another base", adapter=adapter_of(loaded("other")))


def test_an_adapter_of_another_architecture_is_refused(place, base, loaded):
    refuses(place, base, "another base", adapter=adapter_of(loaded("gpt2")))


def test_a_folded_checkpoint_is_not_folded_again(place, base):
    fold(base, place / "adapter", place / "once")
    refuses(place, place / "once", "folded already|another base")
    zero = longseal.load(place / "base", device="cpu")
    none = Adapter.of(zero, tiny.random_scales(zero, "head", spread=0.0), {})
    fold(base, none, place / "same")  # holds the base's own weights
    refuses(place, place / "same", "folded already")


def test_a_truncated_shard_is_refused(place, base):
    shard = sorted((place / "base").glob("*.safetensors"))[1]
    shard.write_bytes(shard.read_bytes()[:-100])
    refuses(place, base, shard.name if not isinstance(base, Path) else "base")


def test_a_missing_shard_is_refused(place, base):
    sorted((place / "base").glob("*.safetensors"))[1].unlink()
    refuses(place, base, "base")


def test_a_shard_that_is_no_safetensors_is_refused(place, base):
    shard = sorted((place / "base").glob("*.safetensors"))[1]
    shard.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n")
    refuses(place, base, "base")


def test_a_checkpoint_without_safetensors_is_refused(place, base):
    for path in (place / "base").glob("*.safetensors*"):
        path.unlink()
    refuses(place, base, "safetensors|cannot be loaded")


def test_a_target_that_cannot_be_written_is_refused(place, base):
    (place / "file").write_text("x")
    refuses(place, base, "cannot be written", target=place / "file" / "target")


def test_a_fold_that_is_interrupted_leaves_nothing_behind(place, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    model = longseal.load(place / "base", device="cpu")
    monkeypatch.setattr(import_module("longseal.fold.plan"), "multiply", interrupt)
    before = tree(place)
    with pytest.raises(KeyboardInterrupt):
        fold(model, place / "adapter", place / "target")
    assert tree(place) == before
