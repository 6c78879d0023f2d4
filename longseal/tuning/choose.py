"""Choose the step and the strength: the best on held-out samples that does no harm elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from longseal.tuning.held_out import Candidate, Judge
from longseal.tuning.learned import State

#: Shares of the strength at which text is read as before, that are asked in turn.
WEAKER = (1.0, 0.75, 0.5)
_HALVINGS = 4  # of the way between no strength and the best candidate's, to find that strength

#: How often text is looked at for that, at most.
MOST_READS = 1 + _HALVINGS

#: Means over tasks of the same scores may differ by so much.
ROUNDING = 1e-9

#: What was learned after a step.
StateOf = Callable[[int], State | None]


class Allows(Protocol):
    """Whatever says whether a step's numbers, at a strength, do no harm."""

    def reads(self, state: State | None, step: int, strength: float) -> bool:
        """Whether general text is read as before; this is quick to tell."""
        ...

    def allows(self, state: State | None, step: int, strength: float) -> bool:
        """Whether they may be taken."""
        ...


def others(first: int, last: int) -> Iterator[tuple[int, float]]:
    """Beside the last step itself, what is worth asking of the steps after `first`."""
    if last - first > 1:
        yield first + (last - first) // 2, 1.0  # the rate falls: three quarters of the movement
    if last > first:
        yield last, 1.4


def better(so_far: Candidate, candidate: Candidate) -> Candidate:
    """The better one; what was there before wins a tie."""
    return candidate if candidate.accuracy > so_far.accuracy + ROUNDING else so_far


def best(judge: Judge, state: StateOf, first: int, last: int, so_far: Candidate) -> Candidate:
    """The best of what was found so far and of the others of the steps after `first`.

    Nothing more is asked once a candidate gets everything right.
    """
    for step, strength in others(first, last):
        if so_far.accuracy == 1.0:
            break
        so_far = better(so_far, judge.judge(state(step), step, strength))
    return so_far


def harmless(
    judge: Judge, state: StateOf, found: Candidate, unchanged: Candidate, bound: Allows
) -> Candidate:
    """The best candidate, or the strongest weaker version of it that is allowed, or unchanged."""
    learned = state(found.step)
    if found.step == 0 or bound.allows(learned, found.step, found.strength):
        return found
    most = _reads_up_to(bound, learned, found)
    for share in WEAKER:
        strength = share * most
        if strength in (0.0, found.strength):
            continue
        weaker = judge.judge(learned, found.step, strength)
        if weaker.accuracy <= unchanged.accuracy + ROUNDING:
            break
        if bound.allows(learned, weaker.step, weaker.strength):
            return weaker
    return unchanged


def _reads_up_to(bound: Allows, learned: State | None, found: Candidate) -> float:
    """About the greatest strength at which general text is read as before; 0 if there is none."""
    if bound.reads(learned, found.step, found.strength):
        return found.strength
    low, high = 0.0, found.strength
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if bound.reads(learned, found.step, middle):
            low = middle
        else:
            high = middle
    return low
