"""An audit: some heads are pruned exactly, and show how far the estimates of all hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from longseal.intervals import rank_correlation
from longseal.models.sites import Head
from longseal.probing.result import Influence, Trust

_TRUSTED = 0.8  # rank correlation from which an estimate is called one


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


def agreement(
    length: int,
    among: Literal["audited", "random"],
    estimated: Sequence[float],
    exact: Sequence[float],
) -> Trust | None:
    """Compare estimates with the exact changes of the same heads.

    None where they cannot be ranked: of fewer than four heads, or all alike.
    """
    from scipy.stats import binomtest

    ranks = rank_correlation(estimated, exact)
    if ranks is None:
        return None
    same = sum((a < 0) == (b < 0) for a, b in zip(estimated, exact, strict=True))
    sign = binomtest(same, len(exact)).proportion_ci(method="wilson")
    rank, interval = ranks
    signs = float(sign.low), float(sign.high)
    return Trust(length, among, len(exact), rank, interval, same / len(exact), signs)


def agreements(
    estimated: Sequence[Influence], exact: Sequence[Influence], chosen: Chosen | None
) -> tuple[Trust, ...]:
    """Agreement at each length, over all that was audited and over what was drawn at random.

    Args:
        chosen: None where all that is estimated was audited.
    """
    guesses = {(each.length, each.name): each.change for each in estimated}
    drawn = set() if chosen is None else set(map(str, chosen.drawn))
    found = []
    for length in dict.fromkeys(each.length for each in exact):
        here = [each for each in exact if each.length == length]
        random = [each for each in here if each.name in drawn]
        for among, heads in (("audited", here), ("random", random)):
            trust = agreement(
                length,
                "audited" if among == "audited" else "random",
                [guesses[length, each.name] for each in heads],
                [each.change for each in heads],
            )
            if trust is not None:
                found.append(trust)
    return tuple(found)


def doubts(trust: Sequence[Trust]) -> list[str]:
    """What to say where estimates and exact changes rank heads otherwise."""
    return [
        f"at {each.length:,} tokens the estimate ranks the audited heads otherwise than exact "
        f"pruning does (correlation {each.rank:.2f}): trust the exact figures alone there"
        for each in trust
        if each.among == "audited" and not each.rank >= _TRUSTED
    ]
