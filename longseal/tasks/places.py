"""Where in a context the things stand that are asked for."""

from __future__ import annotations

from collections.abc import Sequence

from longseal.tasks.sample import Wanted


def arranged(count: int, wanted: Wanted) -> list[int]:
    """The places of `count` things that a sample drew: a shuffled order, which may hold a depth.

    What is drawn first is what is asked, so that the questions do not change with the size; with a
    depth, the very first stands there.
    """
    order = list(range(count))
    wanted.random("order").shuffle(order)
    if wanted.depth is not None:
        order.remove(0)
        order.insert(_at(wanted.depth, count), 0)
    return order


def asked_places(drawn: Sequence[int], count: int, depth: float | None) -> list[int]:
    """Which of `count` things, in their places already, are asked for: those drawn, and so many.

    With a depth, the first is what stands there.
    """
    if depth is None:
        return list(drawn)
    there = _at(depth, count)
    return [there, *(place for place in drawn if place != there)][: len(drawn)]


def _at(depth: float, count: int) -> int:
    return round(depth * (count - 1))
