"""Adapters of one base multiplied: one scale after the other, each at its strength."""

import pytest
import tiny
import torch
from tiny import adapter_of

import longseal
from longseal import Adapter, LongsealError

KINDS = ["head", "channel"]
ROW = torch.tensor([tiny.tokens(20)])


@torch.no_grad()
def logits(model):
    return model.network(input_ids=ROW).logits


def alone(model, adapter):
    with adapter.attached(model):
        return logits(model)


@pytest.fixture
def pair(llama):
    return {"lines": adapter_of(llama, 1, "head"), "needle": adapter_of(llama, 2)}


def test_a_product_is_one_scale_after_the_other(llama, pair):
    half = pair["needle"].times(0.5)
    both = Adapter.product([(pair["lines"], 1.0), (pair["needle"], 0.5)])
    assert both.kind == "channel"
    for site in llama.sites:
        expected = tiny.factors(pair["lines"].scales, site.name, site.width) * tiny.factors(
            half.scales, site.name, site.width
        )
        torch.testing.assert_close(both.scales.scale(site), expected)
    assert [part["strength"] for part in both.record["parts"]] == [1.0, 0.5]


def test_a_product_keeps_what_its_parts_were(llama, tmp_path):
    parts = [
        (adapter_of(llama, 1, "head", task="lines"), 2.0),
        (adapter_of(llama, 2, "head", task="needle"), -1.0),
    ]
    both = Adapter.product(parts)
    both.save(tmp_path / "both")
    again = Adapter.load(tmp_path / "both")
    assert again.kind == "head"
    assert [part["record"]["task"] for part in again.record["parts"]] == ["lines", "needle"]
    assert torch.equal(alone(llama, again), alone(llama, both))


@pytest.mark.parametrize("kind", KINDS)
def test_a_product_of_one_is_that_one(llama, kind):
    adapter = adapter_of(llama, 1, kind)
    one = Adapter.product([(adapter, 1.0)])
    assert one.kind == kind
    for name, delta in adapter.scales.deltas.items():
        assert torch.equal(one.scales.deltas[name], delta)
    assert Adapter.product([(adapter, 0.0)]).scales.unchanged


def test_a_product_is_refused_for_bases_that_differ(llama, loaded):
    with pytest.raises(LongsealError, match="different bases"):
        Adapter.product([(adapter_of(llama, 1), 1.0), (adapter_of(loaded("other"), 2), 1.0)])
    with pytest.raises(LongsealError, match="different bases"):
        Adapter.product([(adapter_of(llama, 1), 1.0), (adapter_of(loaded("gpt2"), 2), 1.0)])


def test_a_product_of_one_base_in_two_dtypes(llama, checkpoint):
    half = longseal.load(checkpoint("llama"), dtype="bfloat16", device="cpu")
    both = Adapter.product([(adapter_of(llama, 1), 1.0), (adapter_of(half, 2), 1.0)])
    assert alone(llama, both).isfinite().all()


@pytest.mark.parametrize("strength", [float("nan"), float("inf"), 1e38 * 10])
def test_a_strength_that_is_no_number_is_refused(llama, strength):
    with pytest.raises(LongsealError, match="finite"):
        Adapter.product([(adapter_of(llama, 1), strength)])


def test_a_product_of_nothing_is_refused():
    with pytest.raises(LongsealError, match="nothing to multiply"):
        Adapter.product([])
