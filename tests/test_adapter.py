"""An adapter on disk is whole, reads back exactly and belongs to one base."""

import json
from dataclasses import replace

import pytest
import tiny
import torch

import longseal
from longseal import Adapter
from longseal.errors import LongsealError
from longseal.models.sites import ValueRows
from longseal.scales import Scales

KINDS = ["head", "channel"]
ROW = torch.tensor([tiny.tokens(50)])


@torch.no_grad()
def logits(network):
    return network(input_ids=ROW).logits


def hooked(model, adapter):
    with adapter.attached(model):
        return logits(model.network)


def made(model, kind="channel", **record):
    return Adapter.of(model, tiny.random_scales(model, kind), record)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_what_is_saved_is_what_is_read(loaded, tmp_path, name, kind):
    adapter = made(loaded(name), kind, task="lines", settings={"seed": 3})
    adapter.save(tmp_path / "adapter")
    again = Adapter.load(tmp_path / "adapter")
    again.save(tmp_path / "again")

    assert again.kind == kind
    assert again.base == str(loaded(name).source)
    assert again.record["task"] == "lines"
    assert again.record["settings"] == {"seed": 3}
    assert again.scales.sites == adapter.scales.sites
    for site in adapter.scales.sites:
        torch.testing.assert_close(
            again.scales.scale(site), adapter.scales.scale(site), rtol=0, atol=0
        )
    torch.testing.assert_close(
        hooked(loaded(name), again), hooked(loaded(name), adapter), rtol=0, atol=1e-5
    )
    weights = "adapter_model.safetensors"
    assert (tmp_path / "adapter" / weights).read_bytes() == (
        tmp_path / "again" / weights
    ).read_bytes()


def test_the_record_says_how_strongly_each_head_speaks(llama, tmp_path):
    adapter = made(llama, "channel")
    adapter.save(tmp_path / "adapter")
    heads = json.loads((tmp_path / "adapter" / "longseal.json").read_text())["heads"]
    for name, delta in adapter.scales.deltas.items():
        expected = [1 + sum(row) / len(row) for row in delta.tolist()]
        assert heads[name] == pytest.approx(expected, rel=1e-5)


def test_other_weights_of_the_same_shape_are_refused(llama, loaded):
    with pytest.raises(LongsealError, match="another base"):
        hooked(loaded("other"), made(llama))


def test_a_base_with_one_tensor_trained_further_is_refused(checkpoint, llama):
    other = longseal.load(checkpoint("llama"), device="cpu")
    with torch.no_grad():
        other.network.model.layers[1].mlp.up_proj.weight.mul_(1.001)
    with pytest.raises(LongsealError, match=r"another base.*up_proj"):
        hooked(other, made(llama))


def test_another_architecture_is_refused_by_the_module_that_is_missing(llama, loaded):
    with pytest.raises(
        LongsealError, match=r"another base.*model\.layers\.0\.self_attn\.o_proj is no"
    ):
        hooked(loaded("gpt2"), made(llama))


def with_site(adapter, number, **changes):
    """The adapter as if it had been made where one site is another."""
    sites = list(adapter.scales.sites)
    sites[number] = replace(sites[number], **changes)
    zeros = Scales.zeros(adapter.kind, sites)
    return replace(adapter, scales=zeros)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"n_heads": 4, "width": 18}, "layers.1.* has 6 x 12 channels here, and 4 x 18"),
        ({"width": 13}, "layers.1.* has 6 x 12 channels here, and 6 x 13"),
        ({"input_axis": 0}, "layers.1.*axis 1 here, and in axis 0"),
        ({"name": "model.layers.7.self_attn.o_proj"}, "layers.7.self_attn.o_proj is no output"),
    ],
)
def test_sites_that_differ_are_named(llama, changes, said):
    with pytest.raises(LongsealError, match=said):
        with_site(made(llama), 1, **changes).on(llama.sites)


def test_a_layer_that_the_adapter_leaves_out_is_named(llama):
    adapter = made(llama)
    fewer = replace(adapter, scales=Scales.zeros("head", llama.sites[:2]))
    with pytest.raises(LongsealError, match=r"leaves out model\.layers\.2"):
        fewer.on(llama.sites)


def test_what_does_not_matter_for_scaling_may_differ(llama):
    adapter = with_site(made(llama), 1, n_kv_heads=6, values="not known")
    assert adapter.on(llama.sites).scales.sites == llama.sites


@pytest.mark.parametrize(("first", "second"), [("float32", "bfloat16"), ("bfloat16", "float32")])
def test_the_same_base_in_another_dtype_is_accepted(checkpoint, first, second):
    model = longseal.load(checkpoint("llama"), dtype=first, device="cpu")
    other = longseal.load(checkpoint("llama"), dtype=second, device="cpu")
    assert hooked(other, made(model)).isfinite().all()


def test_an_adapter_of_another_base_is_refused_in_another_dtype_too(llama, checkpoint):
    other = longseal.load(checkpoint("other"), dtype="bfloat16", device="cpu")
    with pytest.raises(LongsealError, match="another base"):
        hooked(other, made(llama))


def test_where_values_come_from_is_kept(llama, tmp_path):
    adapter = made(llama)
    reason = replace(llama.sites[1], values="values are shared")
    sites = (llama.sites[0], reason, llama.sites[2])
    replace(adapter, scales=replace(adapter.scales, sites=sites)).save(tmp_path / "adapter")
    again = Adapter.load(tmp_path / "adapter").scales.sites
    assert again == sites
    assert isinstance(again[0].values, ValueRows)
    assert again[1].values == "values are shared"


def test_an_adapter_from_before_values_were_recorded_still_loads(llama, tmp_path):
    adapter = made(llama)
    adapter.save(tmp_path / "adapter")
    record = json.loads((tmp_path / "adapter" / "longseal.json").read_text())
    for site in record["sites"]:
        del site["values"]
    (tmp_path / "adapter" / "longseal.json").write_text(json.dumps(record))
    again = Adapter.load(tmp_path / "adapter")
    assert torch.equal(hooked(llama, again), hooked(llama, adapter))


def test_the_strength_is_kept_when_an_adapter_is_saved_weaker(llama, tmp_path):
    adapter = made(llama)
    adapter.times(0.25).save(tmp_path / "weaker")
    again = Adapter.load(tmp_path / "weaker")
    for site in llama.sites:
        expected = 1 + (adapter.scales.scale(site) - 1) / 4
        torch.testing.assert_close(again.scales.scale(site), expected)


def test_saving_never_throws_away_what_is_no_adapter(llama, tmp_path):
    adapter = Adapter.of(llama, Scales.zeros("head", llama.sites), {})
    (tmp_path / "precious").write_text("x")
    with pytest.raises(LongsealError, match="no adapter"):
        adapter.save(tmp_path)
    assert (tmp_path / "precious").read_text() == "x"
    adapter.save(tmp_path / "adapter")
    adapter.save(tmp_path / "adapter")  # an adapter may be replaced
    assert Adapter.load(tmp_path / "adapter").scales.unchanged
