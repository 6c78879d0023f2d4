"""The transfer matrix: how each model does at each task, beside the base."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from longseal.evaluation.compare import BASE, Comparison
from longseal.evaluation.results import Accuracy, Evaluation, label
from longseal.record import learned


@dataclass(frozen=True)
class Cell:
    """One model at one task.

    Attributes:
        difference: from the base's mean score, on the questions both were asked; None for the base.
        p: how often chance alone gives so great a difference; None where that was not tested.
        learned: whether the model was tuned on the task.
    """

    accuracy: Accuracy
    difference: float | None = None
    p: float | None = None
    learned: bool = False


@dataclass(frozen=True)
class Matrix:
    """A row a model, the base first; a column a task, and one a mean over a family of them.

    Attributes:
        length: tokens that all columns have in common; None where their names say it.
        rows: a cell is None where the model was not asked.
    """

    length: int | None
    variants: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell | None, ...], ...]


def matrices(
    evaluation: Evaluation,
    comparisons: Sequence[Comparison],
    tuned_on: Mapping[str, Sequence[str]],
) -> tuple[Matrix, ...]:
    """One matrix a length where every task was asked at every length, else one of everything.

    Args:
        comparisons: with the base.
        tuned_on: by variant, names of the tasks (or families of them) it was tuned on.
    """
    accuracies = (*evaluation.accuracy(), *evaluation.mean())
    cells = {
        (a.variant, a.task, a.group, a.length): Cell(
            a, learned=learned(tuned_on.get(a.variant, ()), a.task)
        )
        for a in accuracies
    }
    for key, cell in cells.items():
        base = cells.get((BASE, *key[1:]))
        if key[0] != BASE and base is not None:  # of means over tasks: these are of all tasks
            cells[key] = replace(cell, difference=cell.accuracy.value - base.accuracy.value)
    for c in comparisons:
        if c.length is not None:
            key = c.after, c.task, c.group, c.length
            cells[key] = replace(cells[key], difference=c.difference, p=c.p)
    variants = tuple(sorted({a.variant: 0 for a in accuracies}, key=lambda v: v != BASE))
    places = list(dict.fromkeys((a.task, a.group, a.length) for a in accuracies))
    lengths = list(dict.fromkeys(length for _, _, length in places))
    names = {label(task, group) for task, group, _ in places}
    grid = len(names) * len(lengths) == len(places)
    parts: dict[int | None, list[tuple[str, str, int]]] = (
        {n: [place for place in places if place[2] == n] for n in lengths}
        if grid
        else {None: places}
    )
    plain = grid or len(names) == len(places)
    return tuple(
        Matrix(
            length,
            variants,
            tuple(label(t, g) if plain else f"{label(t, g)} at {n:,}" for t, g, n in part),
            tuple(tuple(cells.get((variant, *place)) for place in part) for variant in variants),
        )
        for length, part in parts.items()
    )
