"""The loss of one sample, and its gradient with respect to what is learned alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn import functional

from longseal.models.arguments import last_logits
from longseal.models.device_attention import device_attention
from longseal.models.load import LanguageModel
from longseal.models.packed_row import Segment
from longseal.models.row_length import forget_lengths, same_positions
from longseal.models.shared_context import packed_attention, packed_pass, shares_context
from longseal.tasks.prompt import EncodedSample
from longseal.tuning.batches import TrainingRow, one_question_each, training_row


def loss(model: LanguageModel, encoded: EncodedSample, *, backward: bool = False) -> float:
    """Mean cross-entropy (nats a token) of a sample's answers, whatever is attached to the model.

    `lm_head` sees the answer positions only. With `backward`, the gradient is added to what is
    attached and learned; the sum over a sample's questions is the same whether they share a row or
    not.
    """
    packed = shares_row(model, encoded)
    total = sum(map(len, encoded.answers))
    value = 0.0
    with device_attention(model.device), torch.set_grad_enabled(backward):
        for part in parts(model, encoded):
            row = training_row(part, model.device)
            forget_lengths(model.network)
            with _attention_of(model, row, packed):
                summed = _cross_entropy(model, row, packed) / total
                if backward:
                    summed.backward()  # in the block: a layer that is run again attends again
            value += summed.item()
    return value


def parts(model: LanguageModel, encoded: EncodedSample) -> list[EncodedSample]:
    """What of a sample runs in a row of its own: all its questions, or each by itself."""
    return [encoded] if shares_row(model, encoded) else one_question_each(encoded)


def shares_row(model: LanguageModel, encoded: EncodedSample) -> bool:
    """Whether all questions of a sample can run in one row, exactly as in rows of their own."""
    pairs = zip(encoded.questions, encoded.answers, strict=True)
    lengths = [len(encoded.context) + len(question) + len(answer) - 1 for question, answer in pairs]
    one_encoding = same_positions(model.network, min(lengths), max(lengths)) is not None
    return one_encoding and shares_context(model.network)


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
