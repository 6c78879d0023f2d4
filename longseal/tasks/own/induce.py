"""From examples to a format."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from longseal.errors import LongsealError
from longseal.tasks.own.examples import Example
from longseal.tasks.own.from_prose import from_prose
from longseal.tasks.own.from_records import from_records
from longseal.tasks.own.induced import Induced
from longseal.tasks.own.records import cut
from longseal.tasks.own.tokens import marks


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
    said = marks(keep, vary, [text for example in examples for text in example.texts])
    if len({(tuple(role for role, _ in e.before), e.turn) for e in examples}) > 1:
        raise LongsealError("the examples differ in their turns: make a task of each kind")
    found = cut([example.context for example in examples], said)
    if found is None:
        return from_prose(examples, said)
    return from_records(examples, said, found)
