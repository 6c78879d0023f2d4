"""What probing found: each head's influence, and how far an estimate of it can be trusted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from statistics import mean
from typing import Any, Literal

from pydantic import TypeAdapter

from longseal.probing.case import Case
from longseal.probing.heads import HeadName
from longseal.probing.looks import Look

#: exact: run without it; gradient: first order; tail: run without it from the question on.
How = Literal["exact", "gradient", "tail"]
#: What is known of a head.
Figure = Literal["influence", "distance", "first", "copies", "scale"]
_WORDS: dict[Figure, str] = {
    "influence": "influence",
    "distance": "how far back it looks",
    "first": "share at the first tokens",
    "copies": "retrieval score",
    "scale": "learned scale",
}


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
class Answered:
    """How well a model answers at one length, nothing pruned.

    Attributes:
        log_probability: of a right answer, in nats, the mean over the questions.
        accuracy: mean score of freely generated answers, with a 95% interval, questions taken as
            independent; None where none were.
    """

    length: int
    log_probability: float
    accuracy: float | None
    questions: int
    interval: tuple[float, float] | None = None


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
class Looks:
    """Where every head looks at one length, a mean over the contexts."""

    length: int
    heads: tuple[Look, ...]


@dataclass(frozen=True)
class Relation:
    """How two figures of the heads go together at one length.

    Attributes:
        one, other: `influence` is the change when the head is pruned, `scale` what tuning learned
            (the mean of a head's channels); the others are those of `Look`.
        rank: Spearman's correlation, with a 95% interval (Fisher), heads taken as independent.
    """

    length: int
    one: Figure
    other: Figure
    heads: int
    rank: float
    interval: tuple[float, float]

    @property
    def what(self) -> str:
        """The two figures, in words."""
        return f"{_WORDS[self.one]} and {_WORDS[self.other]}"


@dataclass(frozen=True)
class Tuned:
    """The model with an adapter attached.

    Attributes:
        scales: by head, the mean of its channels.
        answered: as `Probe.base` has it of the model as it is.
        case: a question that only the tuned model answers right; None where none was found.
    """

    scales: Mapping[str, float]
    answered: tuple[Answered, ...]
    case: Case | None = None


@dataclass(frozen=True)
class Rescaled:
    """What rescaling whole quadrants does to the answers, on samples that parted no heads.

    Attributes:
        name: such as "Q1:0.9,Q3:1.1"; "base" is the model as it is.
        answered: how well it answers there.
    """

    name: str
    answered: Answered


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
    heads: Mapping[str, tuple[HeadName, ...]]
    rescaled: tuple[Rescaled, ...] = ()

    @property
    def best(self) -> str:
        """The factors with the best mean accuracy, then log-probability; or "base"."""
        names = dict.fromkeys(each.name for each in self.rescaled)

        def worth(name: str) -> tuple[float, float]:
            mine = [each.answered for each in self.rescaled if each.name == name]
            return mean(a.accuracy or 0.0 for a in mine), mean(a.log_probability for a in mine)

        return max(names, key=worth)


@dataclass(frozen=True)
class Probe:
    """All that one probing found.

    Attributes:
        base: the model as it is, at each length.
        looks: where the heads look, at each length; empty where nobody asked.
        relations: of the heads' influence with where they look and with what tuning made of them.
        tuned: the model with an adapter, where one was given.
        quadrants: None where nobody asked for them.
        notes: what its user should know, a sentence each.
    """

    base: tuple[Answered, ...]
    influences: tuple[Influence, ...]
    trust: tuple[Trust, ...] = ()
    looks: tuple[Looks, ...] = ()
    relations: tuple[Relation, ...] = ()
    tuned: Tuned | None = None
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
        made: dict[str, Any] = TypeAdapter(Probe).dump_python(self, mode="json")
        return made

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> Probe:
        """What `to_json` wrote.

        Raises:
            ValueError: it is something else.
        """
        return TypeAdapter(Probe).validate_python(record)

    def rows(self) -> list[dict[str, Any]]:
        """The influences as plain records, such as a data frame takes."""
        return [asdict(each) for each in self.influences]
