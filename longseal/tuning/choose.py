"""Choose the step and the strength: the best on held-out samples that does no harm elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from longseal.tuning.held_out import Candidate, Judge
from longseal.tuning.learned import State

#: Shares of the best candidate's strength that are asked in turn where it does harm.
WEAKER = (0.7, 0.5, 0.35, 0.25)

#: Means over tasks of the same scores may differ by so much.
ROUNDING = 1e-9

#: What was learned after a step.
StateOf = Callable[[int], State | None]


class Allows(Protocol):
    """Whatever says whether a candidate does no harm."""

    def allows(self, candidate: Candidate, state: State | None) -> bool:
        """Whether it may be taken."""
        ...


def candidates(first: int, last: int) -> Iterator[tuple[int, float]]:
    """The steps after `first`, and strengths, that are worth asking, most promising first."""
    if last == first:
        return
    yield last, 1.0
    if last - first > 1:
        yield first + (last - first) // 2, 1.0  # the rate falls: three quarters of the movement
    yield last, 1.4


def best(judge: Judge, state: StateOf, first: int, last: int, so_far: Candidate) -> Candidate:
    """The best candidate of the steps after `first`; whatever was there before wins a tie.

    Nothing more is asked once a candidate gets everything right.
    """
    for step, strength in candidates(first, last):
        if so_far.accuracy == 1.0:
            break
        candidate = judge.judge(state(step), step, strength)
        if candidate.accuracy > so_far.accuracy + ROUNDING:
            so_far = candidate
    return so_far


def harmless(
    judge: Judge, state: StateOf, found: Candidate, unchanged: Candidate, bound: Allows
) -> Candidate:
    """The best candidate, or the strongest weaker version of it that is allowed, or unchanged."""
    if found.step == 0 or bound.allows(found, state(found.step)):
        return found
    for share in WEAKER:
        weaker = judge.judge(state(found.step), found.step, share * found.strength)
        if weaker.accuracy <= unchanged.accuracy + ROUNDING:
            break
        if bound.allows(weaker, state(found.step)):
            return weaker
    return unchanged
