"""Scales may be folded into the values instead, where that is exact, and nowhere else."""

from dataclasses import replace

import folding
import pytest
import tiny
import torch
import zoo
from transformers import AutoModelForCausalLM

import longseal
from longseal import Adapter, fold
from longseal.errors import LongsealError
from longseal.models.fingerprint import fingerprint
from longseal.models.sites import Site, ValueRows
from longseal.models.structure import find_structure
from longseal.scales import Scales

#: Family: the value projection of layer i, its output axis, and the first row of every head.
LAYOUTS = {
    "llama": ("model.layers.{}.self_attn.v_proj", 0, (0, 0, 0, 12, 12, 12)),  # grouped
    "gpt2": ("transformer.h.{}.attn.c_attn", 1, (96, 108, 120, 132)),  # thirds, in columns
    "gpt_neox": ("gpt_neox.layers.{}.attention.query_key_value", 0, (24, 60, 96, 132)),  # per head
    "falcon": ("transformer.h.{}.self_attention.query_key_value", 0, (36, 36, 84, 84)),  # per group
}
CONFIGS = {
    "llama": tiny.LLAMA,
    "gpt2": tiny.GPT2,
    "gpt_neox": {
        "model_type": "gpt_neox",
        "hidden_size": 48,
        "intermediate_size": 72,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    },
    "falcon": {
        "model_type": "falcon",
        "hidden_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_kv_heads": 2,
        "new_decoder_architecture": True,
        "bias": True,
    },
}


def sites_with(name, sites):
    """Sites whose value rows are written down here."""
    path, axis, first = LAYOUTS[name]
    return tuple(replace(s, values=ValueRows(path.format(s.layer), axis, first)) for s in sites)


def scales_of(sites, kind="channel"):
    """Scales that are all different, but in heads that share a value head."""
    random = torch.Generator().manual_seed(2)
    deltas = {}
    for site in sites:
        width = site.width if kind == "channel" else 1
        drawn = 0.3 * torch.randn(site.n_heads, width, generator=random)
        deltas[site.name] = drawn[[site.values.first.index(row) for row in site.values.first]]
    return Scales(kind, tuple(sites), deltas)


@pytest.fixture(
    scope="module", params=[(n, k) for n in LAYOUTS for k in ("head", "channel")], ids="-".join
)
def case(request, tmp_path_factory):
    """Base folder, folded folder, the scales, what folding gave and the hooked logits."""
    name, kind = request.param
    place = tmp_path_factory.mktemp(name)
    base = tiny.save(place / "base", CONFIGS[name])
    network = AutoModelForCausalLM.from_pretrained(base).eval()
    scales = scales_of(sites_with(name, find_structure(network).sites), kind)
    adapter = Adapter(scales, str(base), fingerprint(network), {})
    adapter.save(place / "adapter")
    with scales.attached(network):
        hooked = logits(network)
    folded = fold(base, place / "adapter", place / "folded", projection="value")
    return base, place / "folded", scales, folded, hooked


@torch.no_grad()
def logits(network):
    return network(input_ids=torch.tensor([tiny.tokens(50)])).logits


def test_the_reloaded_model_says_what_the_hooked_one_says(case):
    base, target, _, _, hooked = case
    network = AutoModelForCausalLM.from_pretrained(target).eval()
    torch.testing.assert_close(logits(network), hooked, rtol=1e-5, atol=1e-5)
    assert (hooked - logits(AutoModelForCausalLM.from_pretrained(base).eval())).abs().max() > 0.1


def test_only_the_values_rows_and_their_biases_change(case):
    base, target, scales, _, _ = case
    before, after = folding.tensors(base), folding.tensors(target)
    for site in scales.sites:
        rows = site.values
        factor = torch.ones(before[f"{rows.name}.weight"].shape[rows.output_axis])
        for head, first in enumerate(rows.first):
            factor[first : first + site.width] = scales.scale(site).view(site.n_heads, -1)[head]
        shape = (-1, 1) if rows.output_axis == 0 else (1, -1)
        weight, bias = (before.pop(f"{rows.name}.{kind}") for kind in ("weight", "bias"))
        assert torch.equal(after[f"{rows.name}.weight"], weight * factor.view(shape))
        assert torch.equal(after[f"{rows.name}.bias"], bias * factor)
        assert f"{site.name}.bias" in before
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())


def test_the_record_says_what_was_folded_into(case):
    _, target, _, folded, _ = case
    assert folded.projection == longseal.Folded.read(target).projection == "value"


def test_in_bfloat16_only_the_scaled_rows_count_as_rounded(tmp_path):
    base = tiny.save(tmp_path / "base", CONFIGS["gpt2"], dtype=torch.bfloat16)
    network = AutoModelForCausalLM.from_pretrained(base)
    scales = scales_of(sites_with("gpt2", find_structure(network).sites))
    folded = fold(base, known(base, scales), tmp_path / "target", projection="value")
    before, after = folding.tensors(base), folding.tensors(tmp_path / "target")
    errors, weights, largest = [], [], []
    for site in scales.sites:
        for kind in ("weight", "bias"):
            name = f"{site.values.name}.{kind}"
            exact = before[name][..., 96:].float() * scales.scale(site)
            assert torch.equal(after[name][..., 96:], exact.to(torch.bfloat16))
            assert torch.equal(after[name][..., :96], before[name][..., :96])
            error = after[name][..., 96:].float() - exact
            errors.append(error.flatten())
            weights.append(exact.flatten())
            largest.append(float(error.abs().max() / exact.abs().max()))
    rms = torch.cat(errors).norm() / torch.cat(weights).norm()
    assert folded.rounding == pytest.approx(max(largest), rel=1e-6)
    assert folded.rounding_rms == pytest.approx(float(rms), rel=1e-5)
    assert 1e-4 < folded.rounding_rms < 2**-8


def test_values_in_a_tensor_that_is_split_on_load(tmp_path):
    """hrm_text stores gate, query, key and value below each other, and renames both projections."""
    network = zoo.build("hrm_text")
    network.save_pretrained(tmp_path / "base")
    stored = folding.read(tmp_path / "base" / "model.safetensors")
    name = "model.L_module.layers.0.attn.gqkv_proj.weight"
    site = find_structure(network).sites[0]
    assert site.values.name == "model.L_module.layers.0.self_attn.v_proj"
    scales = scales_of(find_structure(network).sites)
    adapter = Adapter(scales, "", fingerprint(network), {})
    fold(tmp_path / "base", adapter, tmp_path / "value", projection="value")
    folded = folding.read(tmp_path / "value" / "model.safetensors")
    size = len(stored[name]) // 4
    assert torch.equal(folded[name][: 3 * size], stored[name][: 3 * size])
    assert torch.equal(
        folded[name][3 * size :], stored[name][3 * size :] * scales.scale(site)[:, None]
    )
    with scales.attached(network), torch.no_grad():
        hooked = network(**zoo.inputs(network)).logits
    again = type(network).from_pretrained(tmp_path / "value").eval()
    with torch.no_grad():
        torch.testing.assert_close(
            again(**zoo.inputs(network)).logits, hooked, rtol=1e-5, atol=1e-5
        )


# Where it would not be exact.


@pytest.fixture
def place(tmp_path):
    tiny.save(tmp_path / "base")
    return tmp_path


def sites():
    return [Site(f"model.layers.{i}.self_attn.o_proj", i, 6, 2, 12, 1, _rows(i)) for i in range(3)]


def _rows(layer, first=(0, 0, 0, 12, 12, 12)):
    return ValueRows(f"model.layers.{layer}.self_attn.v_proj", 0, first)


def known(base, scales):
    """An adapter of these scales that knows its base."""
    return Adapter(scales, "", fingerprint(AutoModelForCausalLM.from_pretrained(base)))


def refuses(place, match, scales):
    before = folding.tree(place)
    adapter = known(place / "base", scales)
    with pytest.raises(LongsealError, match=match) as refused:
        fold(place / "base", adapter, place / "target", projection="value")
    assert len(str(refused.value).splitlines()) == 1
    assert folding.tree(place) == before


@pytest.mark.parametrize("kind", ["head", "channel"])
def test_unequal_scales_of_heads_that_share_a_value_head(place, kind):
    scales = scales_of(sites(), kind)
    scales.deltas["model.layers.1.self_attn.o_proj"][4, -1] += 1e-6
    words = (
        "layer 1: heads 3 and 4 share a value head and have unequal scales: fold into the output"
    )
    refuses(place, words, scales)


def test_values_that_are_not_known_or_not_exact(place):
    scales = scales_of(sites())
    unknown = replace(scales.sites[2], values="a norm stands between the values and o_proj")
    sites_now = (*scales.sites[:2], unknown)
    refuses(place, "layer 2: a norm stands between", replace(scales, sites=sites_now))


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (_rows(0, (0, 0, 0, 6, 6, 6)), "layer 0: the values of heads 0 and 3 overlap in part"),
        (_rows(0, (0, 12)), "layer 0: the rows of its values are not known for every head"),
        (_rows(0, (0, 0, 0, 13, 13, 13)), "v_proj.weight has an unexpected shape"),
        (_rows(1), "layer 1: another layer takes its values from model.layers.1"),
        (
            ValueRows("model.layers.0.v", 0, (0, 0, 0, 12, 12, 12)),
            "no tensor model.layers.0.v.weight",
        ),
    ],
)
def test_rows_that_cannot_be(place, rows, words):
    scales = scales_of(sites())
    refuses(
        place,
        words,
        replace(scales, sites=(replace(scales.sites[0], values=rows), *scales.sites[1:])),
    )


def test_two_layers_may_take_other_rows_of_one_projection(tmp_path):
    """As where one fused projection serves two layers: each row gets the scale of its layer."""
    base = tiny.save(tmp_path / "base", CONFIGS["gpt2"])
    name = "transformer.h.0.attn.c_attn"
    two = [
        Site("transformer.h.0.attn.c_proj", 0, 2, 2, 24, 0, ValueRows(name, 1, (96, 120))),
        Site("transformer.h.1.attn.c_proj", 1, 2, 2, 24, 0, ValueRows(name, 1, (48, 72))),
    ]
    scales = scales_of(two)
    fold(base, known(base, scales), tmp_path / "target", projection="value")
    before, after = folding.tensors(base), folding.tensors(tmp_path / "target")
    factor = torch.cat([torch.ones(48), scales.scale(two[1]), scales.scale(two[0])])
    assert torch.equal(after[f"{name}.weight"], before[f"{name}.weight"] * factor)
