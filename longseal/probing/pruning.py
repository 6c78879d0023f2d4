"""The effect of scaled or pruned heads, exactly: what hooks on each by itself would give.

At all positions, or, over a prefix that the unchanged model has read, at those of the questions and
answers alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby

import torch
from torch import Tensor

from longseal.models.growing import Growing, grow
from longseal.models.packed_row import Branch, KeyValue, Memory
from longseal.models.prompted import Asked, Continuation
from longseal.models.shared_context import running
from longseal.probing.answers import Answers, Asking, by_answer
from longseal.probing.heads import Variant
from longseal.probing.side_by_side import SideBySide, runs_side_by_side
from longseal.scales.hooks import Factor, scaling
from longseal.tasks.loss import answer_pass, parts, shares_row
from longseal.tasks.prompt import EncodedSample

#: Variants that run side by side have at most so many tokens, or there is one.
TOGETHER = 8192


class Pruning:
    """Measures variants of the model on one sample.

    Args:
        answered: whether to generate answers too, and not only to look at the right ones'
            log-probabilities.
        tail: scale at question and answer positions alone; nothing is generated then.
    """

    def __init__(
        self, asking: Asking, encoded: EncodedSample, *, answered: bool = False, tail: bool = False
    ) -> None:
        assert not (answered and tail)
        self._asking, self._encoded = asking, encoded
        self._answered, self._tail = answered, tail
        self._model = asking.model
        self._parts = parts(self._model, encoded)
        self._packed = shares_row(self._model, encoded)
        self._together = runs_side_by_side(self._model.network, self._model.sites)
        if tail and not self._packed:
            self._together = False
        self._keeps = self._packed and (answered or tail)
        self._passes = [SideBySide(self._model.network, self._model.sites) for _ in self._parts]
        self._kept: Mapping[int, KeyValue] = {}  # of the context, by the unchanged model

    def base(self) -> Answers:
        """The unchanged model's answers."""
        found = self._read()
        scores = self._asking.scores(self._encoded)[0] if self._answered else ()
        return Answers(found, scores)

    @torch.no_grad()
    def _read(self) -> tuple[float, ...]:
        """Let the unchanged model read; its log-probabilities. What is gone on from is kept."""
        memory = Memory(self._encoded.tokens) if self._keeps else None
        found: list[float] = []
        for part in self._parts:
            with answer_pass(self._model, part, memory) as (row, run):
                found += by_answer(run(), row.labels, part.answers)[0]
        if memory is not None:
            self._kept = memory.first(len(self._encoded.context))
        return tuple(found)

    def of(self, variants: Sequence[Variant]) -> Iterator[tuple[Variant, Answers]]:
        """Each variant's answers, in the order of the first layer that it scales."""
        if not self._together:
            for variant in variants:
                yield variant, self._alone(variant)
            return
        if self._keeps and not self._kept:
            self._read()
        context = len(self._encoded.context) if self._tail else 0
        most = max(1, TOGETHER // max(part.tokens - context for part in self._parts))
        lowest = self._passes[0].lowest
        for _, group in groupby(sorted(variants, key=lowest), key=lowest):
            members = list(group)
            size = -(-len(members) // -(-len(members) // most))  # chunks of about the same size
            for start in range(0, len(members), size):
                chunk = members[start : start + size]
                yield from zip(chunk, self._side_by_side(chunk), strict=True)

    @torch.no_grad()
    def _side_by_side(self, variants: Sequence[Variant]) -> list[Answers]:
        memory: Memory | Branch | None = None
        if self._kept:
            memory = Branch(self._kept) if self._tail else Memory(self._encoded.tokens)
        found: list[list[float]] = [[] for _ in variants]
        for part, passes in zip(self._parts, self._passes, strict=True):
            with answer_pass(self._model, part, memory, after_context=self._tail) as (row, run):
                logits = passes.logits(run, variants)
                for mine, new in zip(
                    found, by_answer(logits, row.labels, part.answers), strict=True
                ):
                    mine += new
        if isinstance(memory, Memory):
            scores = self._grown(variants, memory)
        elif self._answered:
            scores = [self._asked(variant) for variant in variants]
        else:
            scores = [() for _ in variants]
        return [Answers(tuple(p), s) for p, s in zip(found, scores, strict=True)]

    def _grown(self, variants: Sequence[Variant], memory: Memory) -> list[tuple[float, ...]]:
        """Scores of all variants' answers, which grow side by side after their contexts."""
        context, device = len(self._encoded.context), self._model.device
        branches = [
            Branch({**self._kept, **memory.first(context, number)})
            for number in range(len(variants))
        ]

        def run(
            samples: Sequence[EncodedSample], budgets: Sequence[Sequence[int]], stop: Sequence[int]
        ) -> Iterator[Continuation]:
            rows = []
            for number, (sample, own, branch) in enumerate(
                zip(samples, budgets, branches, strict=True)
            ):
                asked = Asked(number, sample.context, sample.questions, tuple(own))
                rows.append(Growing(asked, branch, device))
            return grow(self._model, rows, frozenset(stop))

        with _by_branch(self._asking, variants, branches):
            return self._asking.scores(self._encoded, len(variants), run)

    @torch.no_grad()
    def _alone(self, variant: Variant) -> Answers:
        """What a model gives whose layers cannot be run one by one."""
        found: list[float] = []
        start = len(self._encoded.context) if self._tail else 0
        with variant.attached(self._model.network, start):
            for part in self._parts:
                with answer_pass(self._model, part) as (row, run):
                    found += by_answer(run(), row.labels, part.answers)[0]
        return Answers(tuple(found), self._asked(variant) if self._answered else ())

    def _asked(self, variant: Variant) -> tuple[float, ...]:
        with variant.attached(self._model.network):
            return self._asking.scores(self._encoded)[0]


@contextmanager
def _by_branch(
    asking: Asking, variants: Sequence[Variant], branches: Sequence[Branch]
) -> Iterator[None]:
    """Scale each packed row of a pass by the factors of its variant."""
    device = asking.model.device
    places = {id(branch): number for number, branch in enumerate(branches)}

    def factor(name: str, channels: int) -> Factor:
        ones = torch.ones(channels)
        own = [variant.factors.get(name, ones).to(device) for variant in variants]

        def of(_: Tensor) -> Tensor:
            segments = running()
            return torch.cat([own[places[id(s.memory)]].expand(s.tokens, -1) for s in segments])

        return of

    scaled = {name for variant in variants for name in variant.factors}
    factors = {s.name: factor(s.name, s.channels) for s in asking.model.sites if s.name in scaled}
    with scaling(asking.model.network, factors):
        yield
