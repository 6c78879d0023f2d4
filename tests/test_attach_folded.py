"""Scales that are folded into a model are not attached to it a second time."""

import json
import shutil
from pathlib import Path

import pytest
import tiny
import torch
from tiny import adapter_of

import longseal
from longseal import Adapter, LongsealError, attached, fold
from longseal.scales import Scales

KINDS = ["head", "channel"]
ROW = torch.tensor([tiny.tokens(20)])


@torch.no_grad()
def logits(model):
    return model.network(input_ids=ROW).logits


def alone(model, adapter):
    with adapter.attached(model):
        return logits(model)


@pytest.fixture
def sealed(llama, tmp_path):
    """An adapter and the checkpoint that it was folded into."""
    adapter = adapter_of(llama, 1, "head")
    fold(llama, adapter, tmp_path / "sealed")
    return adapter, longseal.load(tmp_path / "sealed", device="cpu")


def test_an_adapter_is_refused_on_its_own_folded_model(sealed, llama):
    adapter, model = sealed
    for other in (adapter, adapter_of(llama, 2)):  # any adapter of that base
        with pytest.raises(LongsealError, match="folded into this model already"):
            alone(model, other)
        with (
            pytest.raises(LongsealError, match="folded into this model already"),
            attached(model, {"x": other}),
        ):
            pass


def test_an_adapter_is_refused_on_its_folded_model_though_the_sampled_weights_are_the_same(
    llama, checkpoint, tmp_path
):
    """A fold that changed weights between those that the fingerprint looks at."""
    adapter = adapter_of(llama, 1)
    shutil.copytree(checkpoint("llama"), tmp_path / "sealed")
    record = {"folded": True, "base_fingerprint": vars(adapter.base_fingerprint)}
    (tmp_path / "sealed" / "longseal.json").write_text(json.dumps(record))
    with pytest.raises(LongsealError, match="folded into this model already"):
        alone(longseal.load(tmp_path / "sealed", device="cpu"), adapter)


def test_an_adapter_without_a_fingerprint_is_refused_by_the_name_of_its_base(sealed):
    adapter, model = sealed
    unknown = Adapter(adapter.scales, adapter.base, None, {})
    with pytest.raises(LongsealError, match="folded into this model already"):
        alone(model, unknown)


@pytest.mark.parametrize("kind", KINDS)
def test_an_adapter_tuned_anew_on_a_folded_model_attaches(sealed, tmp_path, kind):
    _, model = sealed
    again = adapter_of(model, 3, kind)
    again.save(tmp_path / "again")
    found = alone(model, Adapter.load(tmp_path / "again"))
    assert (found - logits(model)).abs().max() > 0.1
    unchanged = Adapter.of(model, Scales.zeros(kind, model.sites), {})
    assert torch.equal(alone(model, unchanged), logits(model))


def test_a_folded_model_from_before_the_fingerprint_was_recorded_is_another_base(sealed):
    adapter, model = sealed
    path = Path(model.source) / "longseal.json"
    record = json.loads(path.read_text())
    del record["base_fingerprint"]
    path.write_text(json.dumps(record))
    with pytest.raises(LongsealError, match="another base"):
        alone(model, adapter)
