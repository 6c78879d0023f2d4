"""The parts of the residual stream, by hand."""

import pytest
import tiny
import torch

from longseal.errors import LongsealError
from longseal.probing.direct import direct_effect
from longseal.probing.frozen import FrozenNorm

TOKENS = tiny.tokens(30, 3)


@pytest.mark.parametrize("name", ["llama", "gpt2", "mistral"])
@pytest.mark.parametrize("scaled", [False, True])
def test_the_parts_add_up_to_the_difference_of_logits(loaded, name, scaled):
    model = loaded(name)
    scales = tiny.random_scales(model, "channel")

    def both():
        with torch.no_grad():
            logits = model.network(input_ids=torch.tensor([TOKENS])).logits[0, -1]
        return direct_effect(model, TOKENS, 20, 30), (logits[20] - logits[30]).item()

    if scaled:
        with scales.attached(model.network):
            found, expected = both()
    else:
        found, expected = both()
    assert found.difference == pytest.approx(expected, rel=1e-4, abs=1e-4)
    total = sum(part.value for part in found.contributions)
    assert total == pytest.approx(expected, rel=1e-4, abs=1e-3)
    heads = [part for part in found.contributions if part.head is not None]
    assert len(heads) == sum(site.n_heads for site in model.sites)


def test_a_head_s_part_is_what_goes_when_it_is_left_out_of_the_last_layer(loaded, plain):
    """In the last layer, of a model whose last MLP writes nothing, nothing else depends on it."""
    model = loaded("llama")
    network = model.network
    site = model.sites[-1]
    layer = network.model.layers[-1]
    before = layer.mlp.down_proj.weight.detach().clone()
    try:
        layer.mlp.down_proj.weight.data.zero_()
        found = direct_effect(model, TOKENS, 20, 30)
        part = next(p for p in found.contributions if p.name == f"L{site.layer}H2")
        stream = {}

        def keep(module, args, output):
            stream["hidden"] = args[0][0, -1].clone()

        handle = network.model.norm.register_forward_hook(keep)
        weight = network.get_submodule(site.name).weight
        kept = weight.detach().clone()
        hidden = []
        for zero in (False, True):
            if zero:
                weight.data[:, 2 * site.width : 3 * site.width] = 0
            with torch.no_grad():
                network(input_ids=torch.tensor([TOKENS]))
            hidden.append(stream["hidden"])
        weight.data.copy_(kept)
        handle.remove()
    finally:
        layer.mlp.down_proj.weight.data.copy_(before)
    norm = network.model.norm
    rms = (hidden[0].square().mean() + norm.variance_epsilon).sqrt()
    head = network.get_output_embeddings().weight
    expected = ((hidden[0] - hidden[1]) * norm.weight / rms) @ (head[20] - head[30])
    assert part.value == pytest.approx(expected.item(), rel=1e-3)


@pytest.mark.parametrize("kind", [torch.nn.LayerNorm, torch.nn.RMSNorm])
@pytest.mark.parametrize("size", [16, 17])
def test_a_frozen_norm_is_the_norm(kind, size):
    torch.manual_seed(0)
    norm = kind(size)
    for parameter in norm.parameters():
        parameter.data = torch.randn(size)
    x = torch.randn(size) * 3
    x[3] = 0.0
    frozen = FrozenNorm.at(norm, x)
    assert frozen.centred == (kind is torch.nn.LayerNorm)
    assert torch.allclose(frozen(x) + frozen.bias, norm(x), atol=1e-4)
    parts, towards = torch.randn(3, size), torch.randn(size)
    assert torch.allclose(parts @ frozen.pulled(towards), frozen(parts) @ towards, atol=1e-4)


def test_what_does_not_add_up_is_refused(loaded):
    model = loaded("llama")
    layer = model.network.model.layers[1]
    handle = layer.register_forward_hook(lambda module, args, output: output * 1.5)
    try:
        with pytest.raises(LongsealError, match="cannot be told apart"):
            direct_effect(model, TOKENS, 20, 30)
    finally:
        handle.remove()
