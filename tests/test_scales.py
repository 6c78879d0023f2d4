"""Attached scales do what multiplied columns do, and detached ones leave nothing behind."""

from copy import deepcopy

import pytest
import tiny
import torch

import longseal
from longseal.errors import LongsealError
from longseal.scales import Scales
from longseal.tasks.loss import loss

KINDS = ["head", "channel"]
ROW = torch.tensor([tiny.tokens(50)])


@torch.no_grad()
def logits(network):
    return network(input_ids=ROW).logits


def multiplied(network, scales):
    """A copy whose output projections' inputs are scaled in the weights, one column at a time."""
    network = deepcopy(network)
    for name, projection in tiny.projections(network).items():
        weight = projection.weight.detach()
        rows = hasattr(projection, "nx")  # Conv1D keeps the input first
        inputs = weight.shape[0 if rows else 1]
        width = inputs // scales.deltas[name].shape[0]
        for channel in range(inputs):
            delta = scales.deltas[name][channel // width]
            scale = 1 + delta[channel % width if len(delta) > 1 else 0].item()
            (weight[channel] if rows else weight[:, channel]).mul_(scale)
    return network


def bits(network):
    return {name: tensor.clone() for name, tensor in network.state_dict().items()}


def same_bits(network, before):
    return all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["llama", "gpt2", "mistral"])
def test_attached_scales_equal_multiplied_columns(loaded, plain, name, kind):
    model = loaded(name)
    scales = tiny.random_scales(model, kind)
    with scales.attached(model.network):
        hooked = logits(model.network)
    expected = logits(multiplied(plain(name), scales))
    torch.testing.assert_close(hooked, expected, rtol=1e-5, atol=1e-5)
    assert (expected - logits(plain(name))).abs().max() > 0.1


def test_every_layer_has_a_site_with_its_heads(loaded):
    sites = loaded("llama").sites
    assert [site.name for site in sites] == [f"model.layers.{i}.self_attn.o_proj" for i in range(3)]
    assert {(s.n_heads, s.n_kv_heads, s.width, s.input_axis) for s in sites} == {(6, 2, 12, 1)}
    sites = loaded("gpt2").sites
    assert [site.name for site in sites] == [f"transformer.h.{i}.attn.c_proj" for i in range(2)]
    assert {(s.n_heads, s.n_kv_heads, s.width, s.input_axis) for s in sites} == {(4, 4, 12, 0)}


def test_a_head_scale_repeats_over_the_channels_of_its_head(llama):
    scales = tiny.random_scales(llama, "head")
    site = llama.sites[1]
    delta = scales.deltas[site.name][:, 0].tolist()
    expected = [1 + value for value in delta for _ in range(12)]
    assert scales.scale(site).tolist() == pytest.approx(expected)
    assert scales.count == 3 * 6


def test_a_channel_scale_is_one_number_a_channel(llama):
    scales = tiny.random_scales(llama, "channel")
    site = llama.sites[1]
    expected = [1 + value for value in scales.deltas[site.name].flatten().tolist()]
    assert scales.scale(site).tolist() == pytest.approx(expected)
    assert scales.count == 3 * 6 * 12


@pytest.mark.parametrize("kind", KINDS)
def test_detaching_leaves_the_model_bit_identical(llama, kind):
    before, said = bits(llama.network), logits(llama.network)
    with tiny.random_scales(llama, kind).attached(llama.network):
        logits(llama.network)
    assert same_bits(llama.network, before)
    assert torch.equal(logits(llama.network), said)


def test_an_exception_inside_leaves_the_model_bit_identical(llama):
    before, said = bits(llama.network), logits(llama.network)
    with (
        pytest.raises(KeyboardInterrupt),
        tiny.random_scales(llama, "head").attached(llama.network),
    ):
        raise KeyboardInterrupt
    assert same_bits(llama.network, before)
    assert torch.equal(logits(llama.network), said)


def test_attaching_twice_is_refused_and_changes_nothing(llama):
    scales, other = tiny.random_scales(llama, "head"), tiny.random_scales(llama, "head", seed=6)
    with scales.attached(llama.network):
        once = logits(llama.network)
        with pytest.raises(LongsealError, match="attached"), other.attached(llama.network):
            pass
        assert torch.equal(logits(llama.network), once)


@pytest.mark.parametrize("kind", KINDS)
def test_zero_scales_change_no_bit(llama, kind):
    said = logits(llama.network)
    scales = Scales.zeros(kind, llama.sites)
    with scales.attached(llama.network):
        assert torch.equal(logits(llama.network), said)
    assert scales.unchanged
    assert not tiny.random_scales(llama, kind).unchanged


def test_times_goes_the_same_way_another_distance(llama):
    scales = tiny.random_scales(llama, "channel")
    half = scales.times(0.5)
    for site in llama.sites:
        torch.testing.assert_close(half.scale(site) - 1, (scales.scale(site) - 1) / 2)
    assert scales.times(0).unchanged


def test_scales_that_are_not_finite_are_seen(llama):
    scales = tiny.random_scales(llama, "head")
    assert scales.finite
    for bad in (float("nan"), float("inf")):
        broken = scales.times(1)
        broken.deltas[llama.sites[0].name][2, 0] = bad
        assert not broken.finite


def test_a_scale_that_bfloat16_cannot_hold_still_tells_in_a_bfloat16_model(checkpoint):
    model = longseal.load(checkpoint("llama"), dtype="bfloat16", device="cpu")
    scales = Scales.zeros("head", model.sites)
    site = model.sites[-1]
    scales.deltas[site.name][:] = 0.003
    assert torch.tensor(1.003).bfloat16() == 1
    assert scales.scale(site).dtype == torch.float32
    projection = model.network.get_submodule(site.name)
    seen = []
    with scales.attached(model.network):
        hook = projection.register_forward_hook(lambda _m, args, _o: seen.append(args[0]))
        logits(model.network)
        hook.remove()
    hook = projection.register_forward_hook(lambda _m, args, _o: seen.append(args[0]))
    logits(model.network)
    hook.remove()
    scaled, plain = seen
    assert scaled.dtype == torch.bfloat16
    assert torch.equal(scaled, (plain.float() * scales.scale(site)).bfloat16())
    assert not torch.equal(scaled, plain)


@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_no_gradient_reaches_the_base(loaded, name):
    model = loaded(name)
    before = bits(model.network)
    scales = tiny.random_scales(model, "channel")
    for delta in scales.deltas.values():
        delta.requires_grad_()
    with scales.attached(model.network):
        loss(model, tiny.encoded(), backward=True)
    assert all(parameter.grad is None for parameter in model.network.parameters())
    assert not any(parameter.requires_grad for parameter in model.network.parameters())
    assert all(delta.grad.abs().min() > 0 for delta in scales.deltas.values())
    assert same_bits(model.network, before)
