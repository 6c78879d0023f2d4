"""LoRA and DoRA as they are learned: PEFT's own layers on all of q, k, v and output, or on none."""

import pytest
import tiny
import torch
import zoo
from low_rank import KINDS, NAMES, adapter_of, logits, moved
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F  # noqa: N812 - its usual name

import longseal
from longseal import LongsealError
from longseal.models.load import LanguageModel
from longseal.models.projections import attention_projections
from longseal.models.saving import saving
from longseal.models.structure import find_structure
from longseal.tasks.loss import loss
from longseal.tuning.learned import learned_of, snapshot

MLA = ["q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"]

FAMILIES = {
    "llama": ["q_proj", "k_proj", "v_proj", "o_proj"],
    "gemma": ["q_proj", "k_proj", "v_proj", "o_proj"],
    "gpt2": ["c_attn", "c_proj"],
    "gpt_neox": ["query_key_value", "dense"],
    "bloom": ["query_key_value", "dense"],
    "mpt": ["Wqkv", "out_proj"],
    "ctrl": ["Wq", "Wk", "Wv", "dense"],
    "bert": ["attention.self.query", "attention.self.key", "attention.self.value", "output.dense"],
    "deepseek_v3": MLA,
    "longcat_flash": MLA,  # two attention modules a layer
    "afmoe": ["q_proj", "k_proj", "v_proj", "o_proj"],  # and a gate, which is none of them
    "hrm_text": ["q_proj", "k_proj", "v_proj", "o_proj"],  # layers that run again and again
}


def wrapped(network):
    """A model around a network that no folder holds."""
    return LanguageModel("", network, tiny.tokenizer(), find_structure(network), None)


@pytest.mark.parametrize("family", FAMILIES)
def test_all_of_q_k_v_and_output_are_adapted_whatever_they_are_called(family):
    model = wrapped(zoo.build(family))
    ends = FAMILIES[family]
    names = attention_projections(model.network, model.sites)
    assert {end for name in names for end in ends if name.endswith(end)} == set(ends)
    assert len(names) == len(model.sites) * len(ends)
    learned = learned_of("lora", model, seed=0)
    assert {name.rsplit(".lora_", 1)[0] for name in learned.parameters} == set(names)


def test_a_layer_that_takes_keys_and_values_of_another_has_a_query_of_its_own():
    network = zoo.build("gemma4_text")
    names = attention_projections(network, find_structure(network).sites)
    queries, keys = ([n for n in names if n.endswith(end)] for end in ("q_proj", "k_proj"))
    assert (len(queries), len(keys)) == (6, 4)


class Packed(nn.Module):
    """A projection of a kind that PEFT does not know."""

    def __init__(self, linear):
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias

    def forward(self, x):
        return F.linear(x, self.weight, self.bias)


class Squashed(nn.Linear):
    def forward(self, x):
        return super().forward(x).tanh()


@pytest.mark.parametrize("spoil", ["unknown to PEFT", "not a plain product", "shared", "no module"])
def test_one_projection_that_cannot_be_adapted_is_named_and_none_is(spoil):
    network = tiny.network(tiny.LLAMA | {"num_hidden_layers": 2})
    attention = network.model.layers[1].self_attn
    linear = attention.k_proj
    if spoil == "unknown to PEFT":
        attention.k_proj = Packed(linear)
    elif spoil == "not a plain product":
        attention.k_proj = Squashed(48, 24)
    elif spoil == "shared":
        attention.k_proj.weight = network.model.layers[0].self_attn.k_proj.weight
    else:
        del attention.k_proj
        vars(attention)["k_proj"] = lambda x: x[..., :24] @ linear.weight[:, :24]
    modules = dict(network.named_modules())
    with pytest.raises(LongsealError, match=r"layers\.[01]\.self_attn\.[ko]_proj"):
        learned_of("lora", wrapped(network), seed=0)
    assert dict(network.named_modules()) == modules


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_everything_is_taken_out_again(checkpoint, name, kind):
    model = longseal.load(checkpoint(name), device="cpu")
    next(model.network.parameters()).requires_grad_(True)
    modules, before = dict(model.network.named_modules()), logits(model.network)
    attributes = set(vars(model.network))
    trained = [p.requires_grad for p in model.network.parameters()]
    learned = learned_of(kind, model, seed=0)
    learned.set(moved(learned))
    for raises in (False, True):
        with (
            pytest.raises(KeyError) if raises else torch.no_grad(),
            learned.attached(model.network),
        ):
            assert (logits(model.network) - before).abs().max() > 0.1
            if raises:
                raise KeyError
        assert torch.equal(logits(model.network), before)
        assert dict(model.network.named_modules()) == modules
        assert set(vars(model.network)) == attributes
        assert [p.requires_grad for p in model.network.parameters()] == trained


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", KINDS)
def test_strength_goes_from_the_unchanged_model_to_the_state(checkpoint, kind, dtype):
    model = longseal.load(checkpoint("llama"), dtype=dtype, device="cpu")
    base = logits(model.network)
    learned = learned_of(kind, model, seed=0)
    start, state = snapshot(learned), moved(learned)
    assert {value.dtype for value in start.values()} == {torch.float32}
    with learned.attached(model.network):
        assert torch.equal(logits(model.network), base)  # nothing is learned yet
        learned.set(state)
        full = logits(model.network)
        learned.set(state, 0.5)
        assert (logits(model.network) - full).abs().max() > 0.01
        for name, value in learned.parameters.items():
            if name.endswith("lora_A.weight"):
                assert torch.equal(value, state[name])
            else:
                torch.testing.assert_close(value, (start[name] + state[name]) / 2)
        learned.set(state, 0.0)
        torch.testing.assert_close(logits(model.network), base, rtol=1e-5, atol=1e-5)
        if kind == "lora":
            assert torch.equal(logits(model.network), base)
        learned.set(state)
        assert torch.equal(logits(model.network), full)


def test_the_beginning_is_drawn_from_the_seed_alone(llama):
    before = torch.get_rng_state()
    first, again, other = (snapshot(learned_of("dora", llama, seed=s)) for s in (4, 4, 5))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(value, again[name]) for name, value in first.items())
    for name, value in first.items():
        if name.endswith("lora_A.weight"):
            assert not torch.equal(value, other[name])
            assert value.abs().max() <= value.shape[1] ** -0.5 < 1.1 * value.abs().max()
        if name.endswith("lora_B.weight"):
            assert not value.any()


def test_rank_4_on_four_projections_is_so_many_numbers(llama):
    """On a 7B Llama: 4 projections, 32 layers, 4 x (4096 + 4096) numbers: the paper's 4.2M."""
    heads, groups, width, hidden = 6, 2, 12, 48
    sizes = [heads * width + hidden, *2 * [groups * width + hidden], heads * width + hidden]
    made = adapter_of(llama, "lora")
    assert made.count == 3 * 4 * sum(sizes)
    outputs = 3 * (heads + 2 * groups) * width + 3 * hidden
    assert adapter_of(llama, "dora").count == made.count + outputs


def ordinary(network, encoded, state):
    """Loss and gradients of one ordinary sample a question, weights added up by hand, float64."""
    leaves = {name: value.double().requires_grad_() for name, value in state.items()}
    weights = {}
    for name in (n.removesuffix(".lora_A.weight") for n in state if n.endswith("lora_A.weight")):
        module = network.get_submodule(name)
        update = 2 * leaves[f"{name}.lora_B.weight"] @ leaves[f"{name}.lora_A.weight"]
        update = update.T if hasattr(module, "nx") else update
        weights[f"{name}.weight"] = module.weight.detach() + update
    total, count = 0.0, 0
    for question, answer in zip(encoded.questions, encoded.answers, strict=True):
        row = torch.tensor([[*encoded.context, *question, *answer]])
        said = functional_call(network, weights, kwargs={"input_ids": row}).logits[0]
        said = said[-len(answer) - 1 : -1].log_softmax(-1)
        total = total - said.gather(1, torch.tensor(answer)[:, None]).sum()
        count += len(answer)
    (total / count).backward()
    return (total / count).item(), {name: leaf.grad for name, leaf in leaves.items()}


@pytest.mark.parametrize("way", ["everything", "attention", "layers"])
@pytest.mark.parametrize("name", NAMES)
def test_loss_and_gradients_of_shared_contexts_are_those_of_ordinary_samples(loaded, name, way):
    model, encoded = loaded(name), tiny.encoded()
    learned = learned_of("lora", model, seed=0)
    state = moved(learned)
    learned.set(state)
    expected, gradients = ordinary(
        tiny.network(getattr(tiny, name.upper())).double(), encoded, state
    )
    with learned.attached(model.network), saving(model.network, way):
        value = loss(model, encoded, backward=True)
    assert value == pytest.approx(expected, rel=1e-5)
    for key, parameter in learned.parameters.items():
        assert (parameter.grad - gradients[key]).norm() <= 1e-5 * gradients[key].norm(), key
