"""The table of results: a row a task and length, a column a variant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from longseal.evaluation.results import Accuracy, Evaluation, label


@dataclass(frozen=True)
class Row:
    """What the variants did at one task and length; None for one that was not asked."""

    name: str
    length: int
    accuracies: tuple[Accuracy | None, ...]


@dataclass(frozen=True)
class Results:
    """The table.

    Attributes:
        several: whether there are several tasks (or groups of one), so that rows need their names.
        means: of the tasks of a family.
        explained: what the cells hold.
    """

    variants: tuple[str, ...]
    several: bool
    rows: tuple[Row, ...]
    means: tuple[Row, ...]
    explained: str


def results(evaluation: Evaluation) -> Results:
    """Make the table of an evaluation."""
    accuracies, means = evaluation.accuracy(), evaluation.mean()
    variants = tuple(dict.fromkeys(a.variant for a in accuracies))
    return Results(
        variants=variants,
        several=len({(a.task, a.group) for a in accuracies}) > 1,
        rows=_rows(accuracies, variants),
        means=_rows(means, variants),
        explained=_explained(accuracies, means),
    )


def _rows(accuracies: Sequence[Accuracy], variants: Sequence[str]) -> tuple[Row, ...]:
    cells = {(a.variant, a.task, a.group, a.length): a for a in accuracies}
    return tuple(
        Row(label(*row[:2]), row[2], tuple(cells.get((variant, *row)) for variant in variants))
        for row in dict.fromkeys((a.task, a.group, a.length) for a in accuracies)
    )


def _explained(accuracies: Sequence[Accuracy], means: Sequence[Accuracy]) -> str:
    said = []
    if any(a.correct is not None for a in accuracies):
        said.append("Percent: share answered right, the count, and the 95% interval (Wilson).")
    if any(a.correct is None for a in accuracies):
        said.append(
            "0 to 1: the mean score, of how many answers, and the 95% interval (bootstrap, BCa)."
        )
    if means:
        said.append("Means over tasks weigh each task the same.")
    return " ".join(said)
