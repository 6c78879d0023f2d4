"""What probing found: each head's influence, and how far an estimate of it can be trusted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import mean
from typing import Any, Literal

from longseal.probing.heads import Head

#: exact: run without it; gradient: first order; tail: run without it from the question on.
How = Literal["exact", "gradient", "tail"]


@dataclass(frozen=True)
class Influence:
    """What becomes of the right answers when a head, a channel or a group is pruned.

    Attributes:
        name: L1H18, L1H18C3, or the group as it was given.
        layer, head: of a single head or a channel; None of a group.
        length: of the prompts, in tokens.
        change: of an answer's log-probability, in nats, the mean over the questions: below 0 where
            the head helps.
        low, high: its 95% interval, questions taken as independent (t); None where it is not known.
        accuracy: change of the mean score of freely generated answers; None where none were.
        questions: how many were asked.
    """

    name: str
    layer: int | None
    head: int | None
    length: int
    method: How
    change: float
    low: float | None
    high: float | None
    accuracy: float | None
    questions: int

    @property
    def of_head(self) -> bool:
        """Whether a single whole head was pruned: no channel of it, and no group."""
        return self.name == f"L{self.layer}H{self.head}"


@dataclass(frozen=True)
class Base:
    """The unchanged model at one length.

    Attributes:
        log_probability: of a right answer, in nats, the mean over the questions.
        accuracy: mean score of freely generated answers; None where none were.
    """

    length: int
    log_probability: float
    accuracy: float | None
    questions: int


@dataclass(frozen=True)
class Trust:
    """How well the gradient's estimates agree with exact pruning at one length.

    Attributes:
        among: which heads were compared: all that were audited, or those drawn at random.
        rank: Spearman's correlation, with a 95% interval (Fisher).
        same_sign: share of heads whose estimate has the sign of the exact change, with a 95%
            interval (Wilson).
    """

    length: int
    among: Literal["audited", "random"]
    heads: int
    rank: float
    rank_interval: tuple[float, float]
    same_sign: float
    same_sign_interval: tuple[float, float]


@dataclass(frozen=True)
class Rescaled:
    """What rescaling whole quadrants does to the answers, on samples that parted no heads.

    Attributes:
        name: such as "Q1:0.9,Q3:1.1"; "base" is the model as it is.
        accuracy: mean score of freely generated answers.
        log_probability: of a right answer, in nats, the mean over the questions.
    """

    name: str
    length: int
    accuracy: float
    log_probability: float
    questions: int


@dataclass(frozen=True)
class Quadrants:
    """Every head's quadrant, by what pruning it does at two lengths (paper, figure 2).

    Attributes:
        middle, long: the two lengths, in tokens.
        heads: by quadrant. Q1: the answers get better without the head at both lengths; Q2: worse
            at the middle one, better at the long one; Q3: worse at both; Q4: better at the middle
            one, worse at the long one.
        rescaled: held-out answers of the model as it is, and with quadrants rescaled.
    """

    middle: int
    long: int
    heads: Mapping[str, tuple[Head, ...]]
    rescaled: tuple[Rescaled, ...] = ()

    @property
    def best(self) -> str:
        """The factors with the best mean accuracy, then log-probability; or "base"."""
        names = dict.fromkeys(each.name for each in self.rescaled)

        def worth(name: str) -> tuple[float, float]:
            rows = [each for each in self.rescaled if each.name == name]
            return mean(e.accuracy for e in rows), mean(e.log_probability for e in rows)

        return max(names, key=worth)


@dataclass(frozen=True)
class Probe:
    """All that one probing found.

    Attributes:
        quadrants: None where nobody asked for them.
        notes: what its user should know, a sentence each.
    """

    base: tuple[Base, ...]
    influences: tuple[Influence, ...]
    trust: tuple[Trust, ...] = ()
    quadrants: Quadrants | None = None
    notes: tuple[str, ...] = ()

    def of(self, method: How, length: int | None = None) -> list[Influence]:
        """The influences found one way, at one length or at all."""
        return [
            each
            for each in self.influences
            if each.method == method and length in (None, each.length)
        ]

    @property
    def best_known(self) -> list[Influence]:
        """Of each name and length, the exact influence where there is one, else what there is."""
        order = {"exact": 0, "tail": 1, "gradient": 2}
        found: dict[tuple[int, str], Influence] = {}
        for each in sorted(self.influences, key=lambda one: -order[one.method]):
            found[each.length, each.name] = each
        return list(found.values())

    def to_json(self) -> dict[str, Any]:
        """JSON values; heads by their names."""
        made = asdict(self)
        if self.quadrants is not None:
            heads = self.quadrants.heads
            made["quadrants"]["heads"] = {name: list(map(str, of)) for name, of in heads.items()}
        return made

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> Probe:
        """What `to_json` wrote."""
        given = record["quadrants"]
        quadrants = given and Quadrants(
            given["middle"],
            given["long"],
            {name: tuple(map(Head.of, of)) for name, of in given["heads"].items()},
            tuple(Rescaled(**row) for row in given["rescaled"]),
        )
        pairs = ("rank_interval", "same_sign_interval")
        return Probe(
            tuple(Base(**row) for row in record["base"]),
            tuple(Influence(**row) for row in record["influences"]),
            tuple(Trust(**(row | {p: tuple(row[p]) for p in pairs})) for row in record["trust"]),
            quadrants,
            tuple(record["notes"]),
        )

    def rows(self) -> list[dict[str, Any]]:
        """The influences as plain records, such as a data frame takes."""
        return [asdict(each) for each in self.influences]


def agreement(
    length: int,
    among: Literal["audited", "random"],
    estimated: Sequence[float],
    exact: Sequence[float],
) -> Trust:
    """Compare estimates with the exact changes of the same heads, four of them or more."""
    from scipy.stats import binomtest, pearsonr, rankdata

    same = sum((a < 0) == (b < 0) for a, b in zip(estimated, exact, strict=True))
    sign = binomtest(same, len(exact)).proportion_ci(method="wilson")
    ranks = pearsonr(rankdata(estimated), rankdata(exact))  # Spearman's, with Fisher's interval
    interval = ranks.confidence_interval()
    return Trust(
        length,
        among,
        len(exact),
        float(ranks.statistic),
        (float(interval.low), float(interval.high)),
        same / len(exact),
        (float(sign.low), float(sign.high)),
    )
