"""The loss of one sample, and its gradient with respect to what is learned alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor
from torch.nn import functional

from longseal.models.arguments import last_logits
from longseal.models.device_attention import device_attention
from longseal.models.load import LanguageModel
from longseal.models.packed_row import Keeps, Segment
from longseal.models.row_length import forget_lengths, same_positions
from longseal.models.shared_context import packed_attention, packed_pass, shares_context
from longseal.tasks.answered_row import AnsweredRow, answered_row, one_question_each
from longseal.tasks.prompt import EncodedSample


def loss(model: LanguageModel, encoded: EncodedSample, *, backward: bool = False) -> float:
    """Mean cross-entropy (nats a token) of a sample's answers, whatever is attached to the model.

    `lm_head` sees the answer positions only. With `backward`, the gradient is added to what is
    attached and learned; the sum over a sample's questions is the same whether they share a row or
    not.
    """
    total = sum(map(len, encoded.answers))
    value = 0.0
    with torch.set_grad_enabled(backward):
        for part in parts(model, encoded):
            with answer_pass(model, part) as (row, run):
                logits = run()[0].float()
                summed = functional.cross_entropy(logits, row.labels, reduction="sum") / total
                if backward:
                    summed.backward()  # in the block: a layer that is run again attends again
            value += summed.item()
    return value


@contextmanager
def answer_pass(
    model: LanguageModel,
    part: EncodedSample,
    memory: Keeps | None = None,
    *,
    after_context: bool = False,
) -> Iterator[tuple[AnsweredRow, Callable[[], Tensor]]]:
    """One of a sample's `parts` as a row, and a pass over it for the length of the block.

    The pass gives the logits that predict the answers' tokens, `(batch, n_answer_tokens,
    vocabulary)`; `lm_head` sees no others. It may be called again.

    Args:
        memory: what keeps the row's keys and values, where it shares its context.
        after_context: leave the context out: `memory` has it.
    """
    network = model.network
    row = answered_row(part, model.device)
    start = len(part.context) if after_context else 0
    inputs = {"input_ids": row.row.tokens[:, start:]}
    places = row.predicts - start
    keep = last_logits(network, places)

    def run() -> Tensor:
        logits: Tensor = network(**inputs, **keep, use_cache=False).logits
        return logits if keep else logits[:, places]

    forget_lengths(network)
    with ExitStack() as stack:
        stack.enter_context(device_attention(model.device))
        if shares_row(model, part):
            inputs["position_ids"] = row.row.positions[:, start:]
            segment = Segment(row.row.layout, row.length - start, memory)
            stack.enter_context(packed_attention(network))
            stack.enter_context(packed_pass(segment))
        yield row, run


def parts(model: LanguageModel, encoded: EncodedSample) -> list[EncodedSample]:
    """What of a sample runs in a row of its own: all its questions, or each by itself."""
    return [encoded] if shares_row(model, encoded) else one_question_each(encoded)


def shares_row(model: LanguageModel, encoded: EncodedSample) -> bool:
    """Whether all questions of a sample can run in one row, exactly as in rows of their own."""
    pairs = zip(encoded.questions, encoded.answers, strict=True)
    lengths = [len(encoded.context) + len(question) + len(answer) - 1 for question, answer in pairs]
    one_encoding = same_positions(model.network, min(lengths), max(lengths)) is not None
    return one_encoding and shares_context(model.network)
