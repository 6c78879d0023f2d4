"""Results as a grid: a row a task and length, a column a variant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from longseal.evaluation.results import Accuracy, label


@dataclass(frozen=True)
class Row:
    """What the variants did at one task and length; None for one that was not asked."""

    name: str
    length: int
    accuracies: tuple[Accuracy | None, ...]

    @property
    def questions(self) -> int:
        """How many were asked."""
        return max(accuracy.total for accuracy in self.accuracies if accuracy is not None)


@dataclass(frozen=True)
class Grid:
    """The rows.

    Attributes:
        several: whether there are several tasks (or groups of one), so that rows need their names.
    """

    variants: tuple[str, ...]
    rows: tuple[Row, ...]
    several: bool


def grid(accuracies: Sequence[Accuracy], variants: Sequence[str] = ()) -> Grid:
    """Lay mean scores out, in their order.

    Args:
        variants: the columns; those that have a score, where none are named.
    """
    variants = tuple(variants or dict.fromkeys(a.variant for a in accuracies))
    cells = {(a.variant, a.task, a.group, a.length): a for a in accuracies}
    places = dict.fromkeys((a.task, a.group, a.length) for a in accuracies)
    rows = tuple(
        Row(label(*place[:2]), place[2], tuple(cells.get((v, *place)) for v in variants))
        for place in places
    )
    return Grid(variants, rows, len({place[:2] for place in places}) > 1)
