"""What was taken for format and what for content, for the user to look over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.table import Table
from rich.text import Text as Styled

from longseal.tasks.own.format import Ask, AskPart, Ref, Slot, Template
from longseal.tasks.own.induce import Induced
from longseal.tasks.own.leaves import (
    Address,
    Chars,
    Choice,
    Counter,
    Date,
    Leaf,
    Letters,
    Name,
    Text,
    Word,
)


def table(induced: Induced) -> Table:
    """A row for each template, with a row for each of its slots under it."""
    form = induced.format
    title = f"format ({'prose with needles' if form.prose else induced.cut})"
    made = Table(title=title, title_justify="left")
    for column in ("part", "format, its slots in brackets", "content", "seen"):
        made.add_column(column, overflow="fold")
    for name, template in _templates(induced):
        made.add_row(name, _marked(template), "", "", end_section=not template.slots)
        for i, slot in enumerate(template.slots, 1):
            last = i == len(template.slots)
            made.add_row(
                "", Styled(f"[{i}]"), Styled(_slot(slot)), str(slot.seen), end_section=last
            )
    for ask in form.asks:
        part = f"question about record {ask.record + 1}"
        made.add_row(part, _asked(ask.question), "", str(ask.weight))
        made.add_row("its answer", _asked(ask.answer), _sought(ask), "", end_section=True)
    return made


def as_json(induced: Induced) -> dict[str, Any]:
    """The same, for programs."""
    return {
        "cut": induced.cut,
        "parts": [
            {
                "part": name,
                "literals": template.literals,
                "slots": [
                    {"content": _slot(s), "unique": s.unique, "seen": s.seen}
                    for s in template.slots
                ],
            }
            for name, template in _templates(induced)
        ],
        "format": induced.format.model_dump(mode="json"),
    }


def describe(leaf: Leaf) -> str:
    """What is drawn for a leaf, in a few words."""
    match leaf:
        case Chars():
            return leaf.pattern
        case Date():
            return f"date like {leaf.form}" + (", rising" if leaf.gap else "")
        case Word():
            return f"{leaf.case} word" + (f" with {leaf.joints}" if leaf.joints else "")
        case Name():
            return f"{leaf.part} name"
        case Text():
            return f"prose, {leaf.words} words"
        case Letters():
            return f"{len(leaf.cases)} letters ({leaf.script})"
        case Address():
            return leaf.kind
        case Counter():
            return f"counter from {leaf.start} by {leaf.step}"
        case Choice():
            return f"one of {', '.join(leaf.values)} (format)"
        case _:
            return "the number of records"


def _templates(induced: Induced) -> Iterator[tuple[str, Template]]:
    form = induced.format
    for i, turn in enumerate(form.before, 1):
        if turn.template is not None:
            yield f"turn {i} ({turn.role})", turn.template
    yield "before", form.head
    for number, record in enumerate(form.records, 1):
        yield f"record {number}" if record.share else f"needle {number}", record.template
    yield "after", form.tail


def _marked(template: Template) -> Styled:
    made = Styled(template.literals[0])
    for i, literal in enumerate(template.literals[1:], 1):
        made.append(f"[{i}]", "bold cyan").append(literal)
    return made


def _asked(parts: tuple[AskPart, ...]) -> Styled:
    made = Styled()
    for part in parts:
        if isinstance(part, str):
            made.append(part)
        elif isinstance(part, Ref):
            made.append(f"[{part.slot + 1}]", "bold cyan")
        else:
            made.append(f"[{describe(part)}]", "bold cyan")
    made.rstrip()
    return made[len(made.plain) - len(made.plain.lstrip()) :]


def _sought(ask: Ask) -> Styled:
    refs = [part for i, part in enumerate(ask.answer) if i in ask.sought]
    slots = dict.fromkeys(f"[{ref.slot + 1}]" for ref in refs if isinstance(ref, Ref))
    return Styled("sought: " + " ".join(slots))


def _slot(slot: Slot) -> str:
    shapes = [
        "".join(part if isinstance(part, str) else f"<{describe(part)}>" for part in shape.parts)
        or "(empty)"
        for shape in slot.shapes
    ]
    more = f" | {len(shapes) - 3} more" if len(shapes) > 3 else ""
    return " | ".join(shapes[:3]) + more + (", no repeats" if slot.unique else "")
