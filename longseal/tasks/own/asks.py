"""Questions and answers tied to the record that they are about."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from longseal.tasks.own.examples import Example, no_answer
from longseal.tasks.own.format import Ask, AskPart, Ref, Template
from longseal.tasks.own.leaves import leaf
from longseal.tasks.own.records import Unit, Values
from longseal.tasks.own.tokens import FUNCTION_WORDS, Marks, Token, tokens

#: Kinds of data that are content wherever they stand, even where no other example shows it.
DATA = frozenset({"uuid", "email", "url", "date", "ip", "id", "decimal"})
_LONG = 4  # digits from which on a number is content; fewer may well be "in 3 words"


@dataclass(frozen=True)
class Linked:
    """A question and its answer with their ties to a record.

    Attributes:
        shapes: the shapes of the record's slots that are referred to (slot, shape).
        sought: the answer's parts that the question does not say already.
        reach: characters that are tied.
    """

    question: tuple[AskPart, ...]
    answer: tuple[AskPart, ...]
    shapes: tuple[tuple[int, int], ...]
    sought: tuple[int, ...]
    reach: int

    def ask(self, record: int, weight: int = 1) -> Ask:
        """As a part of a format."""
        return Ask(
            record=record,
            question=self.question,
            answer=self.answer,
            shapes=self.shapes,
            sought=self.sought,
            weight=weight,
        )


def link(
    values: Values, template: Template, question: str, answer: str, marks: Marks
) -> Linked | None:
    """Tie a question and its answer to a record; None where the answer is not of it."""
    there = _values(values, template)
    asked, reach = _tie(question, there, short=False)
    said, more = _tie(answer, there, short=True)
    known = {_key(part) for part in asked if isinstance(part, Ref)}
    sought = tuple(
        i for i, part in enumerate(said) if isinstance(part, Ref) and _key(part) not in known
    )
    if not sought:
        return None
    refs = [part for part in (*asked, *said) if isinstance(part, Ref)]
    shapes = tuple(sorted({(ref.slot, values[ref.slot][0]) for ref in refs}))
    new = tuple(part for each in asked for part in _loose(each, marks))
    return Linked(new, tuple(said), shapes, sought, reach + more)


def checked(
    best: tuple[Unit, Linked] | None, number: int, examples: Sequence[Example]
) -> tuple[Unit, Linked]:
    """The record that answers an example and its ties.

    Raises:
        LongsealError: there is none, or it does not hold all of the answer.
    """
    if best is None:
        raise no_answer(number, examples, "is nowhere in its context")
    literals = " ".join(part for part in best[1].answer if isinstance(part, str))
    for token in tokens(literals):
        if is_data(token) and token.text not in examples[number].question:
            raise no_answer(number, examples, f"says {token.text!r}, which is not in the record")
    return best


def keyed(template: Template, asked: Iterable[Linked]) -> Template:
    """The template with the slots marked that its questions name."""
    keys = {part.slot for linked in asked for part in linked.question if isinstance(part, Ref)}
    slots = tuple(
        slot.model_copy(update={"key": i in keys and slot.unique})
        for i, slot in enumerate(template.slots)
    )
    return template.model_copy(update={"slots": slots})


def is_data(token: Token) -> bool:
    """Whether a token is content by its looks alone."""
    return token.kind in DATA or (token.kind == "int" and len(token.text) >= _LONG)


def _key(ref: Ref) -> tuple[int, int | None]:
    return ref.slot, ref.part


def _values(values: Values, template: Template) -> list[tuple[str, Ref]]:
    """Values to look for, the longest first; of equal ones those that do not repeat."""
    found: list[tuple[int, bool, str, Ref]] = []
    for i, (shape, texts) in enumerate(values):
        slot = template.slots[i]
        whole = "".join(texts)
        if whole.strip() == whole != "":
            found.append((len(whole), slot.unique, whole, Ref(slot=i)))
        parts = slot.shapes[shape].parts
        for j, (part, text) in enumerate(zip(parts, texts, strict=True)):
            if not isinstance(part, str) and len(texts) > 1 and len(text) > 1:
                found.append((len(text), slot.unique, text, Ref(slot=i, part=j)))
    found.sort(key=lambda each: (-each[0], not each[1], each[3].slot))
    return [(text, ref) for _, _, text, ref in found]


def _tie(text: str, values: Sequence[tuple[str, Ref]], *, short: bool) -> tuple[list[AskPart], int]:
    """A text with the values in it as references, and how many characters they are."""
    parts: list[AskPart] = [text]
    reach = 0
    for value, ref in values:
        if value.lower() in FUNCTION_WORDS or (len(value) == 1 and not (short or value.isdigit())):
            continue
        for case in ("", "lower", "upper"):
            cased = ref.model_copy(update={"case": case})
            said = cased.cased(value)
            if case and said == value:
                continue
            edge = (r"(?<![A-Za-z0-9])", r"(?![A-Za-z0-9])")
            left = edge[0] if said[0].isascii() and said[0].isalnum() else ""
            right = edge[1] if said[-1].isascii() and said[-1].isalnum() else ""
            if said[-1].isdigit():  # a unit may follow: 12ms
                right = r"(?!\d|[.,]\d)"
            pattern = re.compile(f"{left}({re.escape(said)}){right}")
            new: list[AskPart] = []
            for part in parts:
                pieces = pattern.split(part) if isinstance(part, str) else [part]
                for i, piece in enumerate(pieces):
                    if i % 2:
                        new.append(cased)
                        reach += len(said)
                    elif piece != "":
                        new.append(piece)
            parts = new
    return parts, reach


def _loose(part: AskPart, marks: Marks) -> list[AskPart]:
    """Literal text with data that is of no record drawn anew."""
    if not isinstance(part, str):
        return [part]
    made: list[AskPart] = []
    for token in marks.tokens(part):
        varies = token.varied or (is_data(token) and token.kind != "kept")
        new: AskPart = leaf(token) if varies else token.text
        if isinstance(new, str) and made and isinstance(made[-1], str):
            made[-1] += new
        else:
            made.append(new)
    return made
