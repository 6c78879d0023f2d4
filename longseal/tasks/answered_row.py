"""A sample with its answers as one row of tokens: what is run, and what it is to predict."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from longseal.models.packed_row import PackedRow
from longseal.tasks.prompt import EncodedSample


@dataclass(frozen=True)
class AnsweredRow:
    """One forward pass over a context and its questions, answers included.

    Attributes:
        row: the tokens, each question with its answer a block of its own.
        predicts: `(n_answer_tokens,)` int64: the places from which an answer token is predicted.
        labels: `(n_answer_tokens,)` int64: those answer tokens.
    """

    row: PackedRow
    predicts: Tensor
    labels: Tensor

    @property
    def length(self) -> int:
        """Tokens that are run."""
        return self.row.tokens.shape[1]


def answered_row(encoded: EncodedSample, device: torch.device) -> AnsweredRow:
    """All questions of a sample in one row; its gradient is that of as many ordinary rows."""
    pairs = list(zip(encoded.questions, encoded.answers, strict=True))
    blocks = [[*question, *answer[:-1]] for question, answer in pairs]
    row = PackedRow.of(encoded.context, blocks, device)
    predicts = [
        end - offset
        for end, answer in zip(row.ends.tolist(), encoded.answers, strict=True)
        for offset in reversed(range(len(answer)))
    ]
    labels = [token for answer in encoded.answers for token in answer]
    return AnsweredRow(
        row,
        predicts=torch.tensor(predicts, device=device),
        labels=torch.tensor(labels, device=device),
    )


def one_question_each(encoded: EncodedSample) -> list[EncodedSample]:
    """The sample as several of one question: the slower way, right for every model."""
    return [encoded.only([question]) for question in range(len(encoded.questions))]
