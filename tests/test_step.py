"""A step's loss is that of ordinary rows where positions depend on the row's length, too."""

from copy import deepcopy

import pytest
import tiny
import torch

from longseal.models.load import LanguageModel
from longseal.models.shared_context import shares_context
from longseal.models.structure import find_structure
from longseal.tasks.loss import loss, parts

LIMIT = 150  # tokens; rows beyond it are encoded otherwise
LENGTH_DEPENDENT = {
    "dynamic": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0},
    "longrope": {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": [1.0] * 6,
        "long_factor": [1.0, 1.5, 2.0, 3.0, 4.0, 6.0],
        "factor": 4.0,
        "original_max_position_embeddings": LIMIT,
    },
}


def model_of(kind):
    config = {"rope_parameters": LENGTH_DEPENDENT[kind], "max_position_embeddings": LIMIT}
    if kind == "longrope":
        config["max_position_embeddings"] = 4 * LIMIT
    network = tiny.network(tiny.LLAMA | config)
    network.requires_grad_(False)
    return LanguageModel("", network, None, find_structure(network), LIMIT)


@torch.no_grad()
def ordinary(model, sample):
    """Mean loss of rows that a fresh copy of the network runs by themselves."""
    total = torch.zeros(())
    for question, answer in zip(sample.questions, sample.answers, strict=True):
        row = torch.tensor([[*sample.context, *question, *answer[:-1]]])
        logits = deepcopy(model.network)(input_ids=row, use_cache=False).logits[0]
        said = logits[-len(answer) :].log_softmax(-1)
        total -= said.gather(1, torch.tensor(answer)[:, None]).sum()
    return total.item() / sum(map(len, sample.answers))


@pytest.mark.parametrize("kind", LENGTH_DEPENDENT)
@pytest.mark.parametrize("context", [60, 140, 170])
def test_rows_are_shared_only_where_all_of_them_are_encoded_alike(kind, context):
    model, sample = model_of(kind), tiny.encoded(context)  # rows of 3 to 14 tokens more
    assert shares_context(model.network)
    assert loss(model, sample) == pytest.approx(ordinary(model, sample), rel=1e-5)
    shared = context == 60 or (context == 170 and kind == "longrope")
    assert len(parts(model, sample)) == (1 if shared else 3)


@pytest.mark.parametrize("kind", LENGTH_DEPENDENT)
def test_a_longer_row_before_changes_nothing(kind):
    model, sample = model_of(kind), tiny.encoded(140)
    loss(model, tiny.encoded(300))
    assert loss(model, sample) == pytest.approx(ordinary(model_of(kind), sample), rel=1e-5)
