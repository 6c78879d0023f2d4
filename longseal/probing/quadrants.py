"""Heads by what pruning them does at a middle length and at a long one (paper, figure 2)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

from longseal.config import ProbeConfig
from longseal.errors import LongsealError
from longseal.files import Log
from longseal.models.load import LanguageModel
from longseal.models.sites import Head, seats
from longseal.probing.heads import Variant, scaled
from longseal.probing.measure import Measuring
from longseal.probing.result import Influence, Quadrants, Rescaled
from longseal.progress import Bar
from longseal.scales import Adapter, Scales
from longseal.tasks import Task

QUADRANTS = ("Q1", "Q2", "Q3", "Q4")
_PART = re.compile(r"(Q[1-4]):(\d*\.?\d+)", re.IGNORECASE)


def part(found: Sequence[Influence]) -> Quadrants:
    """Part the heads by their changes at the two greatest lengths.

    Args:
        found: the best known influence of every head at each length.

    Raises:
        LongsealError: there is one length only, or no single heads were looked at.
    """
    changes: dict[Head, dict[int, float]] = {}
    for each in found:
        if each.of_head:
            changes.setdefault(Head.of(each.name), {})[each.length] = each.change
    if not changes:
        raise LongsealError("quadrants part single heads: leave --prune and --channels out")
    middle, long = two_lengths({each.length for each in found})
    made: dict[str, list[Head]] = {name: [] for name in QUADRANTS}
    for head, change in sorted(changes.items()):
        better = change[middle] > 0, change[long] > 0
        name = {(True, True): "Q1", (False, True): "Q2", (False, False): "Q3"}.get(better, "Q4")
        made[name].append(head)
    return Quadrants(middle, long, {name: tuple(heads) for name, heads in made.items()})


def two_lengths(lengths: Collection[int]) -> tuple[int, int]:
    """The two greatest.

    Raises:
        LongsealError: there is one only.
    """
    if len(set(lengths)) < 2:
        only = max(lengths)
        raise LongsealError(
            f"quadrants compare two lengths: give a middle and a long one, such as --lengths "
            f"{max(1, only // 2)},{only}"
        )
    middle, long = sorted(set(lengths))[-2:]
    return middle, long


def rescale(
    model: LanguageModel,
    task: Task,
    config: ProbeConfig,
    quadrants: Quadrants,
    log: Log | None,
    bar: Bar,
) -> Quadrants:
    """Ask held-out questions of the model as it is, and with each choice of factors.

    Raises:
        LongsealError: a choice of factors cannot be read.
    """
    variants = [variant_of(name, quadrants, model) for name in config.rescale]
    measuring = Measuring.of(model, task, config, log, bar, part="rescale")
    found = [Rescaled("base", each) for each in measuring.unpruned(answered=True)]
    found += [
        Rescaled(each.name, measuring.answered(f"exact {each.name}", each.length))
        for each in measuring.pruned("exact", variants, answered=True)
    ]
    return replace(quadrants, rescaled=tuple(found))


def variant_of(name: str, quadrants: Quadrants, model: LanguageModel) -> Variant:
    """The model with the heads of some quadrants rescaled, such as "Q1:0.9,Q3:1.1".

    Raises:
        LongsealError: that is not how factors are written.
    """
    return scaled(name, _scales(name, quadrants), model.sites)


def adapter_of(
    name: str, quadrants: Quadrants, model: LanguageModel, record: dict[str, Any]
) -> Adapter:
    """An adapter that rescales the heads so, with no training at all."""
    scales, of = Scales.zeros("head", model.sites), seats(model.sites)
    for head, scale in _scales(name, quadrants).items():
        site, number = of[head]
        scales.deltas[site.name][number] = scale - 1.0
    return Adapter.of(model, scales, record)


def check_factors(name: str) -> None:
    """Refuse factors that cannot be read.

    Raises:
        LongsealError: they are not as in "Q1:0.9,Q3:1.1".
    """
    list(_parts(name))


def _scales(name: str, quadrants: Quadrants) -> dict[Head, float]:
    found: dict[Head, float] = {}
    for quadrant, factor in _parts(name):
        found |= dict.fromkeys(quadrants.heads[quadrant], factor)
    return found


def _parts(name: str) -> Iterator[tuple[str, float]]:
    for part in name.split(","):
        match = _PART.fullmatch(part.strip())
        if match is None:
            raise LongsealError(
                f"{part!r} is no factor of a quadrant: write Q1:0.9, or Q1:0.9,Q3:1.1"
            )
        yield match[1].upper(), float(match[2])
