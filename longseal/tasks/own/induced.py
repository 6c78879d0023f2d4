"""What examples came to, and what records and prose need alike to come to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from longseal.tasks.own.asks import Linked, unsaid
from longseal.tasks.own.examples import Example, no_answer
from longseal.tasks.own.format import Format, Ref, Template, Turn
from longseal.tasks.own.frames import frame
from longseal.tasks.own.records import Unit
from longseal.tasks.own.tokens import Marks


@dataclass(frozen=True)
class Induced:
    """A format, and how the contexts were cut to find it ("prose": not at all)."""

    format: Format
    cut: str


def checked(
    best: tuple[Unit, Linked] | None, number: int, examples: Sequence[Example]
) -> tuple[Unit, Linked]:
    """The record that answers and its ties.

    Raises:
        LongsealError: there is none, or it does not hold all of the answer.
    """
    if best is None:
        raise no_answer(number, examples, "is nowhere in its context")
    missing = unsaid(best[1], examples[number].question)
    if missing:
        raise no_answer(number, examples, f"says {missing[0]!r}, which is not in the record")
    return best


def keyed(
    template: Template, kind: int, asked: Sequence[tuple[Unit, Linked]], home: dict[int, int]
) -> Template:
    """The template with the slots marked that questions name."""
    keys = {
        part.slot
        for unit, linked in asked
        if home[id(unit)] == kind
        for part in linked.question
        if isinstance(part, Ref)
    }
    slots = tuple(
        slot.model_copy(update={"key": i in keys and slot.unique})
        for i, slot in enumerate(template.slots)
    )
    return template.model_copy(update={"slots": slots})


def before(examples: Sequence[Example], said: Marks) -> tuple[Turn, ...]:
    """The turns before the last one."""
    turns = []
    for i, (role, _) in enumerate(examples[0].before):
        texts = [example.before[i][1] for example in examples]
        here = i == examples[0].turn
        turns.append(Turn(role=role, template=None if here else frame(texts, said)))
    return tuple(turns)


def answer_tokens(examples: Sequence[Example]) -> int:
    """What an answer may take: twice the longest, at two bytes a token."""
    return 32 + max(len(example.answer.encode()) for example in examples)
