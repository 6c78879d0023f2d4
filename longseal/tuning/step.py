"""The loss of one sample, and its gradient with respect to the scales alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn import functional

from longseal.models.arguments import last_logits
from longseal.models.load import LanguageModel
from longseal.models.packed_row import Segment
from longseal.models.shared_context import packed_attention, packed_pass, shares_context
from longseal.tasks.prompt import EncodedSample
from longseal.tuning.batches import TrainingRow, one_question_each, training_row


def loss(model: LanguageModel, encoded: EncodedSample, *, backward: bool = False) -> float:
    """Mean cross-entropy (nats a token) of a sample's answers, whatever is attached to the model.

    `lm_head` sees the answer positions only. With `backward`, the gradient is added to the attached
    deltas; the sum over a sample's questions is the same whether they share a row or not.
    """
    packed = shares_context(model.network)
    parts = [encoded] if packed else one_question_each(encoded)
    rows = [training_row(part, model.device) for part in parts]
    total = sum(len(row.labels) for row in rows)
    value = 0.0
    for row in rows:
        with _attention_of(model, row, packed), torch.set_grad_enabled(backward):
            part = _cross_entropy(model, row, packed) / total
            if backward:
                part.backward()  # inside the block: a checkpointed layer runs its attention again
        value += part.item()
    return value


@contextmanager
def _attention_of(model: LanguageModel, row: TrainingRow, packed: bool) -> Iterator[None]:
    if not packed:
        yield
        return
    with packed_attention(model.network), packed_pass(Segment(row.row.layout, row.length)):
        yield


def _cross_entropy(model: LanguageModel, row: TrainingRow, packed: bool) -> Tensor:
    """Summed cross-entropy of the answer tokens, float32."""
    inputs = {"input_ids": row.row.tokens}
    if packed:
        inputs["position_ids"] = row.row.positions
    keep = last_logits(model.network, row.predicts)
    logits = model.network(**inputs, **keep, use_cache=False).logits[0]
    if not keep:
        logits = logits[row.predicts]
    return functional.cross_entropy(logits.float(), row.labels, reduction="sum")
