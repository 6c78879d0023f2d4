"""Which heads an audit confirms: those the estimate ranks first and last, and some of the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from longseal.probing.heads import Head


@dataclass(frozen=True)
class Chosen:
    """The heads to confirm.

    Attributes:
        ends: those whose estimates are the lowest and the highest.
        drawn: drawn at random from the rest: what they show holds for the rest too.
    """

    ends: tuple[Head, ...]
    drawn: tuple[Head, ...]

    @property
    def all(self) -> tuple[Head, ...]:
        """In order of layers."""
        return tuple(sorted((*self.ends, *self.drawn)))


def choose(estimates: Mapping[Head, float], ends: int, drawn: int, seed: int) -> Chosen:
    """The `ends` lowest and as many of the highest, and `drawn` of the rest."""
    ranked = sorted(estimates, key=lambda head: (estimates[head], head))
    ends = min(ends, len(ranked) // 2)
    rest = ranked[ends : len(ranked) - ends]
    taken = Random(f"audit/{seed}").sample(sorted(rest), min(drawn, len(rest)))
    return Chosen((*ranked[:ends], *ranked[len(ranked) - ends :]), tuple(taken))
