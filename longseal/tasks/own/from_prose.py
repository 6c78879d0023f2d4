"""A format from contexts that are prose: what answers is a needle, the rest is content."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import takewhile

from longseal.tasks.own.asks import Linked, checked, keyed, link
from longseal.tasks.own.examples import Example, answer_tokens, no_answer
from longseal.tasks.own.format import Format, Record, Template
from longseal.tasks.own.frames import frame, needle, turns
from longseal.tasks.own.records import Kind, Unit, alike
from longseal.tasks.own.split import sentences
from longseal.tasks.own.tokens import Marks


def from_prose(examples: Sequence[Example], marks: Marks) -> Format:
    """Find the sentence that each question is about.

    Raises:
        LongsealError: an answer is in none.
    """
    contexts = [example.context for example in examples]
    head, tail = _ends(contexts)
    units: list[Unit] = []
    for i, example in enumerate(examples):
        found: tuple[int, Unit] | None = None
        asked = set(marks.tokens(example.question))
        for start, end in sentences(example.context):
            text = example.context[start:end]
            unit = Unit(text, marks.tokens(text), i)
            made = needle(unit, example.question, example.answer)
            if made is None:
                continue
            linked = link(made[1], made[0], example.question, example.answer, marks)
            if linked is None:
                continue
            shared = sum(len(t.text) for t in set(unit.tokens) & asked)
            if found is None or linked.reach + shared > found[0]:
                found = linked.reach + shared, unit
        if found is None:
            raise no_answer(i, examples, "is nowhere in its context, or spread over sentences")
        units.append(found[1])
    records: list[Template] = []
    kinds: list[tuple[Template, list[Unit]]] = []
    for group in alike(units):
        template = Kind(group).learn().template if len(group) > 1 else None
        if template is None or not all(_link(u, template, examples, marks) for u in group):
            kinds += [(_needle(unit, examples), [unit]) for unit in group]
        else:
            kinds.append((template, group))
    asks: Counter[tuple[int, Linked]] = Counter()
    for template, group in kinds:
        tied: list[Linked] = []
        for unit in group:
            linked = _link(unit, template, examples, marks)
            _, linked = checked(None if linked is None else (unit, linked), unit.example, examples)
            tied.append(linked)
            asks[len(records), linked] += 1
        records.append(keyed(template, tied))
    return Format(
        head=frame([head], marks),
        tail=frame([tail], marks),
        separator=" ",
        records=tuple(Record(template=template, share=0) for template in records),
        asks=tuple(linked.ask(kind, n) for (kind, linked), n in asks.items()),
        before=turns(examples, marks),
        prose=True,
        answer_tokens=answer_tokens(example.answer for example in examples),
    )


def _link(
    unit: Unit, template: Template, examples: Sequence[Example], marks: Marks
) -> Linked | None:
    example = examples[unit.example]
    return link(unit.values, template, example.question, example.answer, marks)


def _needle(unit: Unit, examples: Sequence[Example]) -> Template:
    made = needle(unit, examples[unit.example].question, examples[unit.example].answer)
    assert made is not None
    template, unit.values = made
    return template


def _ends(contexts: Sequence[str]) -> tuple[str, str]:
    """What all contexts begin and end with, in whole lines."""
    if len(contexts) < 2:
        return "", ""
    start = _shared(contexts)
    start = start[: start.rfind("\n") + 1]
    end = _shared([context[len(start) :][::-1] for context in contexts])
    return start, end[: end.rfind("\n") + 1][::-1]


def _shared(texts: Sequence[str]) -> str:
    alike = takewhile(lambda chars: len(set(chars)) == 1, zip(*texts, strict=False))
    return "".join(chars[0] for chars in alike)
