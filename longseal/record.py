"""What a tuning wrote into its adapter's record (`tuning.record`), read; older ones say less."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from longseal.config import Extension, weighted
from longseal.errors import LongsealError

#: The file that an adapter, and a folded checkpoint, keep it in.
RECORD = "longseal.json"

#: The `record` of an adapter.
Record = Mapping[str, Any]


@dataclass(frozen=True)
class Format:
    """A retrieval format before and after tuning, by mean score, 0 to 1.

    Attributes:
        wanted: tuned on; else it was watched, so that no harm is done to it.
        questions: how many were asked; None where that is not known.
        reworded: how many answers score as the base's in other words; None where nobody looked.
    """

    name: str
    wanted: bool
    base: float
    chosen: float
    questions: int | None = None
    reworded: int | None = None


@dataclass(frozen=True)
class Text:
    """General text before and after tuning.

    Attributes:
        tokens: how many were predicted.
        base, chosen: perplexity.
        kl: divergence of the predicted distributions from the base's, nats a token.
        agreement: share of the tokens at which both predict the same one first, 0 to 1.
    """

    name: str
    tokens: int
    base: float
    chosen: float
    kl: float
    agreement: float

    @property
    def change(self) -> float:
        """How much perplexity rose, as a share of the base's."""
        return self.chosen / self.base - 1


@dataclass(frozen=True)
class Rung:
    """A length that was trained at, on the way up.

    Attributes:
        accuracy: of held-out questions at the wanted length; None where it was not measured.
        stopped: why it ended early; None where it did not.
        mends: whether general text counted more than usual, as what was found before harmed it.
    """

    train_length: int
    steps: int
    seconds: float
    accuracy: float | None
    stopped: str | None
    mends: bool = False


def formats(record: Record) -> tuple[Format, ...]:
    """Every format before and after: the wanted ones, then those that were watched."""
    wanted = [
        Format(name, True, row["base"], row["chosen"])
        for name, row in (record.get("held_out") or {}).items()
    ]
    watched = [
        Format(
            after["name"],
            False,
            before["score"],
            after["score"],
            after.get("questions"),
            after.get("reworded"),
        )
        for before, after in _before_and_after(record, "formats")
    ]
    return (*wanted, *watched)


def texts(record: Record) -> tuple[Text, ...]:
    """Every text before and after."""
    return tuple(
        Text(
            after["name"],
            after["tokens"],
            _number(before["perplexity"]),
            _number(after["perplexity"]),
            _number(after["kl"]),
            after["agreement"],
        )
        for before, after in _before_and_after(record, "texts")
    )


def rungs(record: Record) -> tuple[Rung, ...]:
    """The ladder of training lengths."""
    return tuple(
        Rung(
            row["train_length"],
            row["steps"],
            row["seconds"],
            row["accuracy"],
            row.get("stopped"),
            row.get("mends", False),
        )
        for row in record.get("rungs") or ()
    )


def tasks(record: Record) -> tuple[str, ...]:
    """Names of the tasks that it was tuned on, as they were asked for and as they are called."""
    names = [
        *_names((record.get("settings") or {}).get("task")),
        *str(record.get("task") or "").split(", "),
        *(record.get("held_out") or {}),
        *(name for part in record.get("parts") or () for name in tasks(part["record"])),
    ]
    return tuple(name for name in dict.fromkeys(names) if name)


def lengths(record: Record) -> tuple[int, ...]:
    """The length, or the least and the greatest, at which it was judged; empty if not known."""
    asked = (record.get("settings") or {}).get("length") or ()
    return (asked,) if isinstance(asked, int) else tuple(asked)


def extension(record: Record, path: Path | str = RECORD) -> Extension | None:
    """What it was tuned under; None where under nothing.

    Raises:
        LongsealError: it says something else.
    """
    said = record.get("extend")
    if not said:
        return None
    try:
        return Extension.parse(said)
    except (TypeError, ValueError, AttributeError) as error:
        raise LongsealError(f"{path} is damaged: extend: {error}") from error


def learned(names: Sequence[str], task: str) -> bool:
    """Whether a task is one of these, or of a family that is."""
    return any(task == name or task.startswith(f"{name}/") for name in names)


def _names(asked: object) -> list[str]:
    names = [asked] if isinstance(asked, str) else asked if isinstance(asked, list | tuple) else ()
    return [weighted(name)[0] for name in names]


def _number(value: float | None) -> float:
    return inf if value is None else value  # JSON has no infinity


def _before_and_after(record: Record, kind: str) -> Iterator[tuple[Record, Record]]:
    guard = record.get("guard") or {}
    before, after = (
        {row["name"]: row for row in (guard.get(side) or {}).get(kind) or ()}
        for side in ("base", "chosen")
    )
    return ((before[name], after[name]) for name in after if name in before)
