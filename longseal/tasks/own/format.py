"""A format: literal text with slots, and what is drawn for each; a task file's header holds it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from longseal.tasks.own.leaves import Leaf, Model

Part = str | Leaf


class Shape(Model):
    """One way that a slot is written: literal texts and leaves, in order."""

    parts: tuple[Part, ...]
    weight: int = Field(default=1, ge=1)


class Slot(Model):
    """What varies between two literal texts.

    Attributes:
        unique: its values do not repeat within a context.
        key: questions name it, so that it has to be unique, at the cost of a longer value.
        seen: how many values the examples had.
    """

    shapes: tuple[Shape, ...] = Field(min_length=1)
    unique: bool = False
    key: bool = False
    seen: int = 1


class Template(Model):
    """Literal texts with slots between them: there is one text more than slots."""

    literals: tuple[str, ...] = Field(min_length=1)
    slots: tuple[Slot, ...] = ()

    @model_validator(mode="after")
    def _match(self) -> Template:
        if len(self.literals) != len(self.slots) + 1:
            raise ValueError("a template needs one literal text more than slots")
        return self


class Ref(Model):
    """A value of the record that is asked for.

    Attributes:
        part: one part of the slot's shape; None is the whole slot.
        case: how its letters are written here.
    """

    kind: Literal["ref"] = "ref"
    slot: int = Field(ge=0)
    part: int | None = Field(default=None, ge=0)
    case: Literal["", "lower", "upper"] = ""

    def cased(self, value: str) -> str:
        """A value with its letters written so."""
        return {"": value, "lower": value.lower(), "upper": value.upper()}[self.case]


AskPart = str | Ref | Leaf


class Ask(Model):
    """A question and its answer, as literal texts, values of a record, and what is drawn freely.

    Attributes:
        record: which record type it asks for.
        shapes: the shapes that the record's slots must have (slot, shape).
        sought: the answer's parts, by number, that a prediction is scored on.
    """

    record: int = Field(ge=0)
    question: tuple[AskPart, ...]
    answer: tuple[AskPart, ...]
    shapes: tuple[tuple[int, int], ...]
    sought: tuple[int, ...] = Field(min_length=1)
    weight: int = Field(default=1, ge=1)

    @property
    def keyed(self) -> bool:
        """Whether the question says which record it means."""
        return any(isinstance(part, Ref) for part in self.question)


class Record(Model):
    """A type of record.

    Attributes:
        share: how often it comes; 0 for one that is there only to be asked for (a needle).
    """

    template: Template
    share: int = Field(ge=0)


class Turn(Model):
    """A turn before the user's last one; its template is None where the context stands."""

    role: Annotated[str, StringConstraints(min_length=1)]
    template: Template | None


class Format(Model):
    """All that examples say about how a sample looks.

    Attributes:
        head, tail: what stands before and after the records, or the prose.
        separator: what stands between two records.
        records: the types of records; in prose all of them are needles.
        order: types of successive records, over and over; empty: drawn by their shares.
        before: turns before the last one.
        prose: the context is prose with needles in it.
        answer_tokens: what an answer may take.
    """

    head: Template
    tail: Template
    separator: str
    records: tuple[Record, ...] = Field(min_length=1)
    order: tuple[int, ...] = ()
    asks: tuple[Ask, ...] = Field(min_length=1)
    before: tuple[Turn, ...] = ()
    prose: bool = False
    answer_tokens: int = Field(ge=1)

    @model_validator(mode="after")
    def _whole(self) -> Format:
        """Every number names something that is there."""
        if any(not 0 <= kind < len(self.records) for kind in self.order):
            raise ValueError("the order names a record type that is not there")
        if not self.prose and not any(record.share for record in self.records):
            raise ValueError("no record type has a share of the context")
        for ask in self.asks:
            if ask.record >= len(self.records):
                raise ValueError("a question is about a record type that is not there")
            slots = self.records[ask.record].template.slots
            shapes = dict(ask.shapes)
            for slot, shape in ask.shapes:
                if not (0 <= slot < len(slots) and 0 <= shape < len(slots[slot].shapes)):
                    raise ValueError("a question needs a shape that is not there")
            for part in (*ask.question, *ask.answer):
                if isinstance(part, Ref) and (
                    part.slot not in shapes
                    or (part.part or 0) >= len(slots[part.slot].shapes[shapes[part.slot]].parts)
                ):
                    raise ValueError("a question refers to a value that is not there")
            if any(not 0 <= i < len(ask.answer) for i in ask.sought):
                raise ValueError("what a question seeks is not in its answer")
        return self
