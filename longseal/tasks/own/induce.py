"""From examples to a format: what of them is drawn anew, and what is kept to the letter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from longseal.errors import LongsealError
from longseal.tasks.own.examples import Example
from longseal.tasks.own.format import Format
from longseal.tasks.own.from_prose import from_prose
from longseal.tasks.own.from_records import from_records
from longseal.tasks.own.records import cut
from longseal.tasks.own.tokens import read_marks


@dataclass(frozen=True)
class Induced:
    """A format, and how the contexts were cut to find it (`prose`: not at all)."""

    format: Format
    cut: str


def induce(
    examples: Sequence[Example], *, keep: Iterable[str] = (), vary: Iterable[str] = ()
) -> Induced:
    """Find what varies in examples, and what is format.

    Args:
        keep: texts or regular expressions that are format.
        vary: texts or regular expressions that are content.

    Raises:
        LongsealError: an answer cannot be tied to its context, or the examples differ in kind.
    """
    marks = read_marks(keep, vary, [text for example in examples for text in example.texts])
    if len({(tuple(role for role, _ in e.before), e.turn) for e in examples}) > 1:
        raise LongsealError("the examples differ in their turns: make a task of each kind")
    found = cut([example.context for example in examples], marks)
    if found is None:
        return Induced(from_prose(examples, marks), "prose")
    return Induced(from_records(examples, marks, found), found.name)
