"""PEFT, transformers and lm-eval read our adapters; we read those of PEFT that fit."""

import json

import pytest
import tiny
import torch
from peft import IA3Config, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

from longseal import Adapter, LongsealError, fold, load
from longseal.models.structure import find_structure

KINDS = ["head", "channel"]
ROW = torch.tensor([tiny.tokens(50)])
PROJECTIONS = {"llama": "o_proj", "gpt2": "attn.c_proj", "mistral": "o_proj"}


@torch.no_grad()
def logits(network):
    return network(input_ids=ROW).logits


def hooked(model, adapter):
    with adapter.attached(model):
        return logits(model.network)


def fresh(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["llama", "gpt2", "mistral"])
def test_peft_gives_the_hooked_logits(loaded, checkpoint, tmp_path, name, kind):
    adapter = Adapter.of(loaded(name), tiny.random_scales(loaded(name), kind), {})
    adapter.save(tmp_path / "adapter")
    base = fresh(checkpoint(name))
    before = logits(base)
    network = PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    expected = hooked(loaded(name), adapter)

    torch.testing.assert_close(logits(network), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(logits(network.merge_and_unload()), expected, rtol=1e-5, atol=1e-5)
    assert (expected - before).abs().max() > 0.1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_the_adapter_loader_of_transformers_gives_the_hooked_logits(
    loaded, checkpoint, tmp_path, name, kind
):
    adapter = Adapter.of(loaded(name), tiny.random_scales(loaded(name), kind), {})
    adapter.save(tmp_path / "adapter")
    network = fresh(checkpoint(name))
    network.load_adapter(str(tmp_path / "adapter"))
    torch.testing.assert_close(logits(network), hooked(loaded(name), adapter), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_lm_eval_gives_the_hooked_log_probabilities(loaded, checkpoint, tmp_path, name, kind):
    from lm_eval.api.instance import Instance  # a second to import
    from lm_eval.models.huggingface import HFLM

    adapter = Adapter.of(loaded(name), tiny.random_scales(loaded(name), kind), {})
    adapter.save(tmp_path / "adapter")
    options = {"device": "cpu", "dtype": "float32", "batch_size": 2}
    judge = HFLM(pretrained=str(checkpoint(name)), peft=str(tmp_path / "adapter"), **options)
    base = HFLM(pretrained=str(checkpoint(name)), **options)
    expected = hooked(loaded(name), adapter)
    torch.testing.assert_close(judge._model_call(ROW), expected, rtol=1e-5, atol=1e-5)

    asked = [("the key of line three is", " 4152430"), ("x", " a longer answer than that")]
    requests = [Instance("loglikelihood", {}, pair, i) for i, pair in enumerate(asked)]
    found = [value for value, _ in judge.loglikelihood(requests)]
    with adapter.attached(loaded(name)):
        wanted = [log_probability(loaded(name), *pair) for pair in asked]
    assert found == pytest.approx(wanted, abs=1e-4)  # a sum of some 25 logarithms
    assert [value for value, _ in base.loglikelihood(requests)] != pytest.approx(wanted, abs=0.01)


@torch.no_grad()
def log_probability(model, context, answer):
    """Sum over the answer's tokens."""
    before, after = model.tokenizer.encode(context), model.tokenizer.encode(answer)
    row = torch.tensor([before + after])
    chances = model.network(input_ids=row).logits[0].float().log_softmax(-1)
    places = range(len(before) - 1, row.shape[1] - 1)
    return sum(chances[i, token].item() for i, token in zip(places, after, strict=True))


def of_peft(folder, target, *, feedforward=None, targets=None, dtype=torch.float32, base=None):
    """An adapter as PEFT makes it, with random scales; returns PEFT's own logits."""
    network = get_peft_model(
        (base or fresh(folder)).to(dtype),
        IA3Config(
            task_type="CAUSAL_LM",
            target_modules=targets,
            feedforward_modules=targets if feedforward is None else feedforward,
        ),
    ).eval()
    random = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if "ia3_l" in name:
                parameter.copy_(1 + 0.3 * torch.randn(parameter.shape, generator=random))
    network.save_pretrained(target)
    return logits(network)


@pytest.mark.parametrize("name", ["llama", "gpt2", "mistral"])
@pytest.mark.parametrize("form", ["ends", "regex", "paths"])
def test_an_adapter_that_peft_made_gives_pefts_logits(loaded, checkpoint, tmp_path, name, form):
    model, end = loaded(name), PROJECTIONS[name]
    targets = {
        "ends": [end],
        "regex": rf".*\.{end}",
        "paths": [site.name for site in model.sites],
    }[form]
    expected = of_peft(checkpoint(name), tmp_path / "adapter", targets=targets)
    adapter = Adapter.load(tmp_path / "adapter")

    assert adapter.base_fingerprint is None
    assert "no fingerprint" in adapter.note
    assert adapter.kind == "channel"
    torch.testing.assert_close(hooked(model, adapter), expected, rtol=1e-5, atol=1e-5)
    assert (expected - logits(model.network)).abs().max() > 0.1
    resolved = adapter.on(model.sites)
    assert resolved.scales.sites == model.sites
    assert {s.input_axis for s in adapter.scales.sites} == {s.input_axis for s in model.sites}


def test_an_adapter_that_peft_made_in_bfloat16(llama, checkpoint, tmp_path):
    of_peft(checkpoint("llama"), tmp_path / "adapter", targets=["o_proj"], dtype=torch.bfloat16)
    model = load(checkpoint("llama"), dtype="bfloat16", device="cpu")
    assert hooked(model, Adapter.load(tmp_path / "adapter")).isfinite().all()


def test_an_adapter_that_peft_made_is_saved_as_ours_without_a_fingerprint(
    llama, checkpoint, tmp_path
):
    of_peft(checkpoint("llama"), tmp_path / "adapter", targets=["o_proj"])
    adapter = Adapter.load(tmp_path / "adapter").on(llama.sites)
    adapter.save(tmp_path / "ours")
    again = Adapter.load(tmp_path / "ours")
    assert again.base_fingerprint is None
    assert again.scales.sites == llama.sites
    assert torch.equal(hooked(llama, again), hooked(llama, adapter))


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_an_adapter_that_peft_made_can_be_folded(loaded, checkpoint, tmp_path, name):
    expected = of_peft(checkpoint(name), tmp_path / "adapter", targets=[PROJECTIONS[name]])
    adapter = Adapter.load(tmp_path / "adapter").on(loaded(name).sites)
    fold(loaded(name), adapter, tmp_path / "sealed")
    sealed = fresh(tmp_path / "sealed")
    torch.testing.assert_close(logits(sealed), expected, rtol=1e-5, atol=1e-5)


REFUSED = {
    "PEFT's own choice": ({"targets": None}, r"output of .*(k_proj|v_proj).*merge"),
    "values": ({"targets": ["v_proj"], "feedforward": []}, r"output of .*v_proj"),
    "outputs of the projections": (
        {"targets": ["o_proj"], "feedforward": []},
        r"output of .*o_proj",
    ),
    "another input": ({"targets": ["o_proj", "down_proj"]}, r"down_proj is no output.*merge"),
    "another input alone": ({"targets": ["down_proj"]}, r"down_proj is no output.*merge"),
    "missing layers": ({"targets": ["0.self_attn.o_proj"]}, r"leaves out model\.layers\.1"),
}


@pytest.mark.parametrize(("made", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_an_adapter_of_peft_that_does_more_or_less_is_refused(
    llama, checkpoint, tmp_path, made, said
):
    of_peft(checkpoint("llama"), tmp_path / "adapter", **made)
    with pytest.raises(LongsealError, match=said) as refused:
        Adapter.load(tmp_path / "adapter").on(llama.sites)
    assert len(str(refused.value).splitlines()) == 1


def test_an_adapter_of_peft_for_other_sizes_is_refused(loaded, checkpoint, tmp_path):
    narrow = tiny.network(tiny.LLAMA | {"head_dim": 8})
    sites = find_structure(narrow).sites  # before PEFT puts modules of its own in between
    of_peft(None, tmp_path / "adapter", targets=["o_proj"], base=narrow)
    adapter = Adapter.load(tmp_path / "adapter")
    adapter.on(sites)
    with pytest.raises(LongsealError, match=r"layers\.0.* has 6 x 12 channels here"):
        adapter.on(loaded("llama").sites)


def test_a_transposed_claim_is_refused(loaded, checkpoint, tmp_path):
    """GPT-2's projection is square: only the config tells along which axis to fold."""
    of_peft(checkpoint("gpt2"), tmp_path / "adapter", targets=["attn.c_proj"])
    path = tmp_path / "adapter" / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"fan_in_fan_out": False}))
    with pytest.raises(LongsealError, match="fan_in_fan_out"):
        Adapter.load(tmp_path / "adapter").on(loaded("gpt2").sites)
