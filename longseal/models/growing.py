"""Answers that grow side by side after the context they share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from time import monotonic

import torch
from torch import Tensor

from longseal.models.load import LanguageModel
from longseal.models.packed_row import Keeps, Layout, PackedRow, Segment
from longseal.models.prompted import Asked, Continuation
from longseal.models.shared_context import logits_of, packed_attention, packed_pass


class Growing:
    """A packed row whose blocks grow by a token in every pass while they are being answered."""

    def __init__(self, asked: Asked, memory: Keeps, device: torch.device) -> None:
        self.memory = memory
        self._asked = asked
        self._start = len(asked.context)
        self._row = PackedRow.of(asked.context, asked.questions, device)
        self._layout = self._row.layout
        self._answers: list[list[int]] = [[] for _ in asked.questions]
        self._seconds = [0.0] * len(asked.questions)
        self.alive = list(range(len(asked.questions)))

    def context_pass(self, done: int) -> tuple[Segment, Tensor, Tensor]:
        """The context alone, but for the tokens that are `done`."""
        n = self._start
        layout = Layout(n, self._layout.blocks[:0])
        part = slice(done, n)
        segment = Segment(layout, n - done, self.memory)
        return segment, self._row.tokens[:, part], self._row.positions[:, part]

    def question_pass(self) -> tuple[Segment, Tensor, Tensor]:
        """All questions, after the context."""
        n = self._start
        tokens, positions = self._row.tokens[:, n:], self._row.positions[:, n:]
        return Segment(self._layout, tokens.shape[1], self.memory), tokens, positions

    def question_ends(self) -> Tensor:
        """The place of each question's last token in that pass."""
        return self._row.ends - self._start

    def next_pass(self) -> tuple[Segment, Tensor, Tensor]:
        """The last token of every answer that is not whole yet."""
        device = self._row.tokens.device
        tokens = torch.tensor([[self._answers[i][-1] for i in self.alive]], device=device)
        lengths = [len(self._asked.questions[i]) + len(self._answers[i]) for i in self.alive]
        positions = torch.tensor([[self._start + n - 1 for n in lengths]], device=device)
        blocks = torch.cat([self._layout.blocks, torch.tensor(self.alive, device=device)])
        self._layout = Layout(self._start, blocks)
        return Segment(self._layout, len(self.alive), self.memory), tokens, positions

    def spend(self, seconds: float) -> None:
        """Count the time of a pass, for each answer that grows in it."""
        for question in self.alive:
            self._seconds[question] += seconds

    def take(self, tokens: list[int], stop: frozenset[int]) -> Iterator[Continuation]:
        """Add a token to each answer that grows; give those that are whole with it."""
        for question, token in zip(list(self.alive), tokens, strict=True):
            answer = self._answers[question]
            if token not in stop:
                answer.append(token)
            if token in stop or len(answer) == self._asked.budgets[question]:
                self.alive.remove(question)
                seconds = self._seconds[question]
                yield Continuation(self._asked.index, question, answer, seconds)


def grow(
    model: LanguageModel, rows: Sequence[Growing], stop: frozenset[int]
) -> Iterator[Continuation]:
    """Run the questions of rows whose contexts have been run, and answer them side by side."""
    network, device = model.network, model.device
    passes = [row.question_pass() for row in rows]
    ends = [row.question_ends() for row in rows]
    while rows:
        began = monotonic()
        sizes = [segment.tokens for segment, _, _ in passes]
        starts = accumulate(sizes, initial=0)
        places = torch.cat([start + end for start, end in zip(starts, ends, strict=False)])
        tokens = torch.cat([part for _, part, _ in passes], dim=1)
        positions = torch.cat([part for _, _, part in passes], dim=1)
        segments = [segment for segment, _, _ in passes]
        # These hold only while the network runs: the caller may use it between two answers.
        with torch.no_grad(), packed_attention(network), packed_pass(*segments):
            logits = logits_of(network, tokens, positions, places)
        chosen = logits.argmax(-1).tolist()
        share = (monotonic() - began) / len(chosen)
        for row in rows:
            row.spend(share)
            new, chosen = chosen[: len(row.alive)], chosen[len(row.alive) :]
            yield from row.take(new, stop)
        rows = [row for row in rows if row.alive]
        passes = [row.next_pass() for row in rows]
        ends = [torch.arange(len(row.alive), device=device) for row in rows]
