"""What an evaluation found: cases, and accuracy with its confidence interval."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Case:
    """One question that was asked: a line of `results.jsonl`, with all it takes to ask it again.

    Attributes:
        variant: which model was asked: `base`, `tuned` or `folded`.
        length: the length that was asked for, in tokens; `tokens` is the prompt's own.
        size: units (lines ...) in the context.
        context, question: which sample, and which question of it.
        scores: each way of scoring, `metric` among them.
    """

    variant: str
    task: str
    length: int
    seed: int
    context: int
    question: int
    tokens: int
    size: int
    expected: str
    prediction: str
    metric: str
    scores: Mapping[str, bool]

    @property
    def correct(self) -> bool:
        """By the task's own score."""
        return self.scores[self.metric]


@dataclass(frozen=True)
class Accuracy:
    """How many of `total` answers were right, and a 95% interval (Wilson) of the share."""

    variant: str
    length: int
    correct: int
    total: int
    low: float
    high: float

    @property
    def value(self) -> float:
        """Share of right answers, 0 to 1."""
        return self.correct / self.total


@dataclass(frozen=True)
class Evaluation:
    """All cases of an evaluation, in the order asked."""

    cases: tuple[Case, ...]

    def accuracy(self) -> tuple[Accuracy, ...]:
        """Accuracy by variant and length, in the order of the cases.

        The interval takes answers as independent. Questions on one context are not wholly so: ask
        one question a context (`questions=1`) where the interval matters more than the time.
        """
        groups: dict[tuple[str, int], list[bool]] = {}
        for case in self.cases:
            groups.setdefault((case.variant, case.length), []).append(case.correct)
        return tuple(_accuracy(*key, answers) for key, answers in groups.items())


def _accuracy(variant: str, length: int, answers: Iterable[bool]) -> Accuracy:
    from scipy.stats import binomtest  # a second to import: only where it is used

    right = list(answers)
    interval = binomtest(sum(right), len(right)).proportion_ci(method="wilson")
    return Accuracy(variant, length, sum(right), len(right), interval.low, interval.high)


def case_from(record: Mapping[str, Any]) -> Case:
    """The case that a line of `results.jsonl` holds."""
    return Case(**{name: record[name] for name in Case.__dataclass_fields__})
