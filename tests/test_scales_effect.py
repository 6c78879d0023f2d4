"""A kernel that goes past the output projection is found out when scales are attached."""

import types
import warnings

import pytest
import tiny
import torch
from torch.nn import functional
from transformers.models.llama.modeling_llama import LlamaAttention

from longseal import Adapter, LongsealError, load
from longseal.scales import Scales, attached, effect
from longseal.tasks.loss import loss

ROW = torch.tensor([tiny.tokens(20)])


@torch.no_grad()
def logits(network):
    return network(input_ids=ROW).logits


@pytest.fixture
def fresh(checkpoint):
    """A network that nothing was checked on yet."""
    return load(checkpoint("llama"), device="cpu")


class Unseen:
    """Stands for a projection in a kernel that takes its weights alone."""

    def __init__(self, projection):
        self._projection = projection

    def __call__(self, hidden):
        return functional.linear(hidden, self._projection.weight, self._projection.bias)


def bypassing(self, *args, **kwargs):
    """Llama's attention, its output projection computed from the weights."""
    projection = self._modules.pop("o_proj")
    vars(self)["o_proj"] = Unseen(projection)
    try:
        return LlamaAttention.forward(self, *args, **kwargs)
    finally:
        del vars(self)["o_proj"]
        self._modules["o_proj"] = projection


def ignoring(self, *args, **kwargs):
    """Runs the projection as it should, and puts out what the kernel computed."""
    LlamaAttention.forward(self, *args, **kwargs)
    return bypassing(self, *args, **kwargs)


def fuse(model, layers, forward=bypassing):
    for layer in layers:
        module = model.network.model.layers[layer].self_attn
        module.forward = types.MethodType(forward, module)


def attach(model, how):
    scales = tiny.random_scales(model, "head")
    for delta in scales.deltas.values():
        delta.requires_grad_(how == "learning")
    adapter = Adapter.of(model, scales, {})
    if how == "several":
        return attached(model, {"one": adapter, "two": adapter})
    return adapter.attached(model) if how == "adapter" else scales.attached(model.network)


WAYS = ["learning", "scales", "adapter", "several"]


@pytest.mark.parametrize("forward", [bypassing, ignoring])
@pytest.mark.parametrize("how", WAYS)
def test_a_bypass_is_refused_by_name_however_scales_are_attached(fresh, how, forward):
    before = logits(fresh.network)
    fuse(fresh, [1], forward)
    torch.testing.assert_close(logits(fresh.network), before)  # the kernel is right: it only hides
    for _ in range(2):  # and the refusal is not forgotten
        with (
            pytest.raises(
                LongsealError, match=r"no effect on model\.layers\.1\.self_attn\.o_proj:"
            ),
            attach(fresh, how),
        ):
            pass
    assert not any(module._forward_pre_hooks for module in fresh.network.modules())
    assert not any(module._forward_hooks for module in fresh.network.modules())


def test_several_bypassed_layers_are_counted(fresh):
    fuse(fresh, [0, 2])
    with (
        pytest.raises(LongsealError, match=r"layers\.0\.self_attn\.o_proj and 1 more"),
        attach(fresh, "scales"),
    ):
        pass


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("name", ["llama", "gpt2", "mistral"])
def test_the_check_costs_two_short_passes_once(checkpoint, name, how):
    model = load(checkpoint(name), device="cpu")
    said, seen = logits(model.network), []
    handle = model.network.register_forward_pre_hook(
        lambda _, __, given: seen.append(given["input_ids"].shape), with_kwargs=True
    )
    for _ in range(2):
        with attach(model, how):
            pass
    handle.remove()
    assert seen == [(1, 11), (1, 11)]
    assert torch.equal(logits(model.network), said)


def test_another_attention_is_checked_anew(fresh):
    with attach(fresh, "scales"):
        pass
    fresh.network.set_attn_implementation("eager")
    fuse(fresh, [1])
    with pytest.raises(LongsealError, match="'eager'"), attach(fresh, "scales"):
        pass


def test_gradients_pass_after_the_check(fresh):
    scales = Scales.zeros("channel", fresh.sites)
    for delta in scales.deltas.values():
        delta.requires_grad_()
    with scales.attached(fresh.network):
        loss(fresh, tiny.encoded(), backward=True)
    assert all(delta.grad.abs().max() > 0 for delta in scales.deltas.values())


def test_a_projection_of_zeros_is_no_bypass(fresh):
    with torch.no_grad():
        fresh.network.model.layers[1].self_attn.o_proj.weight.zero_()
    with attach(fresh, "scales"):
        pass


def a_kernel_in_the_last_layer_is_heard(fresh):
    """Nothing is wrong until a kernel goes past the last projection."""
    with attach(fresh, "scales"):
        pass
    fuse(fresh, [2])
    effect._CHECKED.clear()
    with pytest.raises(LongsealError, match=r"on model\.layers\.2"), attach(fresh, "scales"):
        pass


def test_the_head_that_tells_most_is_doubled(fresh):
    """All heads but one are cut off: only that one can show whether scales take effect."""
    with torch.no_grad():
        for site in fresh.sites:
            weight = fresh.network.get_submodule(site.name).weight
            weight[:, : 4 * site.width] = 0
            weight[:, 5 * site.width :] = 0
    a_kernel_in_the_last_layer_is_heard(fresh)


def test_an_attention_that_writes_into_its_output_is_judged_aright(fresh):
    """Each layer adds in place to what attention gave it, as some models do."""
    for layer in fresh.network.model.layers:
        layer.register_forward_hook(lambda _, __, output: output.add_(1))
        layer.self_attn.register_forward_hook(lambda _, __, output: (output[0].add_(1), output[1]))
    a_kernel_in_the_last_layer_is_heard(fresh)


def test_a_network_that_does_not_run_on_few_tokens_is_attached_with_a_warning(fresh):
    def refuse(_, __, given):
        if given["input_ids"].shape[1] < 16:
            raise ValueError("at least 16 tokens, please")

    before = logits(fresh.network)
    fresh.network.register_forward_pre_hook(refuse, with_kwargs=True)
    with pytest.warns(UserWarning, match="could not be checked.*16 tokens, please"):  # noqa: SIM117
        with attach(fresh, "scales"):
            assert (logits(fresh.network) - before).abs().max() > 0.01
    with warnings.catch_warnings(), attach(fresh, "scales"):  # said once
        warnings.simplefilter("error")


def test_a_compiled_model_is_refused(fresh):
    """Its code does not look for hooks that come later."""
    fresh.network.model.layers[1].self_attn.compile(backend="eager")
    with (
        pytest.raises(LongsealError, match=r"layers\.1\.self_attn is compiled"),
        attach(fresh, "scales"),
    ):
        pass
