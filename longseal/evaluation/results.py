"""What an evaluation found: cases, and their mean scores with confidence intervals."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from math import hypot
from typing import Any

from longseal.errors import LongsealError
from longseal.intervals import mean_interval


@dataclass(frozen=True)
class Case:
    """One question that was asked: a line of `results.jsonl`, with all it takes to ask it again.

    Attributes:
        key: hash of all that the answer depends on (`case_key`).
        variant: which model was asked: `base`, `tuned` or `folded`.
        group: what it is counted under beside its task, such as a range of lengths; may be empty.
        length: the length that was asked for, the answer's budget included, in tokens; of samples
            from a file, the longest in the group. `tokens` is the prompt's own.
        context, question: which sample, and which question of it.
        size: units (lines, words ...) in the context.
        depth: where the answer stands, 0 the context's start and 1 its end; None if in no one
            place. `wanted_depth` is where it was meant to.
        prompt: hash of the prompt's tokens.
        expected: the references.
        thoughts: tokens of thought before the answer.
        seconds: the time of what was answered together, divided by the answers.
        scores: each way of scoring, 0 (wrong) to 1 (right); `metric` is the one that counts.
        window, extend: tokens that the model reaches, None where it does not say, and by which
            extension, empty where by none.
    """

    key: str
    variant: str
    task: str
    group: str
    length: int
    seed: int
    context: int
    question: int
    tokens: int
    size: int
    depth: float | None
    wanted_depth: float | None
    prompt: str
    expected: tuple[str, ...]
    prediction: str
    thoughts: int
    seconds: float
    metric: str
    scores: Mapping[str, float]
    window: int | None = None
    extend: str = ""

    @property
    def value(self) -> float:
        """The task's own score, 0 to 1."""
        return float(self.scores[self.metric])

    @property
    def correct(self) -> bool:
        """Whether the answer is wholly right by the task's own score."""
        return self.value == 1


@dataclass(frozen=True)
class Accuracy:
    """The mean score of `total` answers, 0 to 1, and its 95% interval.

    Attributes:
        length: the length that was asked for, in tokens.
        correct: how many answers are right; None for a task that gives parts of a point.
    """

    variant: str
    task: str
    group: str
    length: int
    value: float
    total: int
    low: float
    high: float
    correct: int | None


@dataclass(frozen=True)
class AtDepth:
    """The mean score of `total` answers that were meant to stand at one depth, 0 to 1."""

    variant: str
    task: str
    group: str
    length: int
    depth: float
    value: float
    total: int


@dataclass(frozen=True)
class Evaluation:
    """All cases of an evaluation, in the order asked.

    Attributes:
        excluded: by task, how many of a file's questions were too long for the model's window.
    """

    cases: tuple[Case, ...]
    excluded: Mapping[str, int] = field(default_factory=dict)

    def accuracy(self) -> tuple[Accuracy, ...]:
        """Mean scores by variant, task, group and length, in the order of the cases.

        The interval is Wilson's where every answer is right or wrong, else a bootstrap (BCa) of the
        mean. Both take answers as independent. Questions on one context are not wholly so, and the
        interval is then too narrow: ask one question a context (`questions=1`) where it matters.
        Whether one model is better than another is for `compare`, which minds this.
        """
        groups: dict[tuple[str, str, str, int], list[float]] = defaultdict(list)
        for case in self.cases:
            groups[case.variant, case.task, case.group, case.length].append(case.value)
        in_parts = {case.task for case in self.cases if case.value not in (0, 1)}
        return tuple(
            _accuracy(*key, values, in_parts=key[1] in in_parts) for key, values in groups.items()
        )

    def mean(self) -> tuple[Accuracy, ...]:
        """Means over the tasks of a family, each task weighing the same: RULER's average.

        One for each variant, group and length at which two or more tasks of a family were asked,
        and all of those that any variant was asked there: a mean of fewer would be of other tasks.
        The interval joins the tasks' own (MOVER: Zou & Donner, Statistics in Medicine 27, 2008).
        """
        rows: dict[tuple[str, str, int], dict[str, list[Accuracy]]] = {}
        for row in self.accuracy():
            variants = rows.setdefault((row.task.split("/")[0], row.group, row.length), {})
            variants.setdefault(row.variant, []).append(row)
        return tuple(
            _mean(family, found)
            for (family, _, _), variants in rows.items()
            for found in variants.values()
            if 1 < len(found) == len({row.task for rows in variants.values() for row in rows})
        )

    def by_depth(self) -> tuple[AtDepth, ...]:
        """Mean scores by variant, task, group, length and wanted depth, of the cases that have one.

        In the order of the cases.
        """
        cells: dict[tuple[str, str, str, int, float], list[float]] = defaultdict(list)
        for case in self.cases:
            if (depth := case.wanted_depth) is not None:
                cells[case.variant, case.task, case.group, case.length, depth].append(case.value)
        return tuple(
            AtDepth(*key, value=sum(values) / len(values), total=len(values))
            for key, values in cells.items()
        )


def label(task: str, group: str) -> str:
    """A task, and what of it is counted by itself, such as `qa, 4-8k`."""
    return f"{task}, {group}" if group else task


def case_key(
    model_fingerprint: str,
    adapter_fingerprint: str,
    task: str,
    settings: Mapping[str, Any],
    seed: int,
    prompt: str,
) -> str:
    """Hash what an answer depends on, so that a stale result is never taken for a new one.

    Args:
        settings: JSON values.
        prompt: hash of the prompt's tokens.
    """
    parts = [model_fingerprint, adapter_fingerprint, task, settings, seed, prompt]
    return sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def case_from(record: Mapping[str, Any]) -> Case:
    """The case that a line of `results.jsonl` holds.

    Raises:
        LongsealError: the line is of an older longseal, which kept too little to trust it.
    """
    if "key" not in record:
        raise LongsealError(
            "the results here were kept by an older longseal, which did not say what they depend "
            "on: ask again with --overwrite"
        )
    record = {"window": None, "extend": "", **record}  # before models could be extended
    fields = {name: record[name] for name in Case.__dataclass_fields__}
    return Case(**fields | {"expected": tuple(record["expected"])})


def _accuracy(
    variant: str, task: str, group: str, length: int, values: Sequence[float], *, in_parts: bool
) -> Accuracy:
    low, high = mean_interval(values)
    return Accuracy(
        variant=variant,
        task=task,
        group=group,
        length=length,
        value=sum(values) / len(values),
        total=len(values),
        low=low,
        high=high,
        correct=None if in_parts else sum(value == 1 for value in values),
    )


def _mean(family: str, rows: Sequence[Accuracy]) -> Accuracy:
    value = sum(row.value for row in rows) / len(rows)
    return Accuracy(
        variant=rows[0].variant,
        task=f"{family}, mean of {len(rows)}",
        group=rows[0].group,
        length=rows[0].length,
        value=value,
        total=sum(row.total for row in rows),
        low=value - hypot(*(row.value - row.low for row in rows)) / len(rows),
        high=value + hypot(*(row.high - row.value for row in rows)) / len(rows),
        correct=None,
    )
