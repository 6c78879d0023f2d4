"""Content drawn for a format: values of the same kinds, none of them the examples'."""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random

from longseal.tasks.haystack import Haystack, built_in
from longseal.tasks.own.dates import DATES
from longseal.tasks.own.format import Shape, Slot, Template
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
from longseal.tasks.own.vocabulary import first_names, last_names, letters, nouns, prose

_CLASSES = {
    "*": string.digits[1:],
    "#": string.digits,
    "a": string.ascii_lowercase,
    "A": string.ascii_uppercase,
    "h": "0123456789abcdef",
    "H": "0123456789ABCDEF",
}
_TRIES = 20
_START = datetime(1995, 1, 1)
_SPAN = 35 * 365 * 86_400  # seconds that dates are drawn from
#: Writes content in the place of drawing it: which leaf, and the text around it with the leaf's
#: place marked; None where it is to be drawn after all.
Write = Callable[[Leaf, str], str | None]


@dataclass(frozen=True)
class Drawn:
    """A record as drawn.

    Attributes:
        text: all of it.
        slots: each slot's parts.
    """

    text: str
    slots: tuple[tuple[str, ...], ...]

    def value(self, slot: int, part: int | None) -> str:
        """What stands in a slot, or in one part of it."""
        return "".join(self.slots[slot]) if part is None else self.slots[slot][part]


@dataclass
class Drawing:
    """One context's content, drawn in order.

    Attributes:
        count: how many records there are.
        haystack: what prose is taken from.
    """

    random: Random
    count: int = 0
    haystack: Haystack = field(default_factory=built_in)
    _used: dict[object, set[str]] = field(default_factory=dict)
    _full: set[object] = field(default_factory=set)  # what has run out of new values
    _state: dict[object, datetime] = field(default_factory=dict)

    def record(
        self,
        template: Template,
        name: object,
        index: int = 0,
        shapes: Mapping[int, int] | None = None,
        write: Write | None = None,
    ) -> Drawn:
        """Draw a template's slots.

        Args:
            name: of the template: what must not repeat does not repeat under it.
            index: which record of its type it is.
            shapes: the shapes that some slots must have.
            write: writes some of the content.
        """
        slots: list[tuple[str, ...]] = []
        text = template.literals[0]
        for i, slot in enumerate(template.slots):
            shape = (shapes or {}).get(i)
            where = (text, template.literals[i + 1])
            slots.append(self._slot(slot, (name, i), index, shape, where, write))
            text += "".join(slots[-1]) + template.literals[i + 1]
        return Drawn(text, tuple(slots))

    def _slot(
        self,
        slot: Slot,
        name: object,
        index: int,
        shape: int | None,
        where: tuple[str, str],
        write: Write | None,
    ) -> tuple[str, ...]:
        """Draw one slot's parts; `where` is the text before it and the literal text after it."""
        used = self._used.setdefault(name, set())
        tries = 1 if name in self._full else 10 * _TRIES
        weights = [each.weight for each in slot.shapes]
        for attempt in range(tries):
            # A key that runs out of values of the right length goes on with longer ones.
            wide = attempt // _TRIES if slot.key else 0
            chosen = slot.shapes[shape] if shape is not None else self._pick(slot.shapes, weights)
            parts: list[str] = []
            for i, part in enumerate(chosen.parts):
                if isinstance(part, str):
                    parts.append(part)
                    continue
                marked = f"{where[0]}{''.join(parts)}____{where[1]}"
                written = None if write is None or attempt else write(part, marked)
                parts.append(written or self.leaf(part, (name, i), index, wide))
            new = "".join(parts) not in used
            if new or not (slot.key or (slot.unique and attempt < _TRIES)):
                break
        else:
            self._full.add(name)
        used.add("".join(parts))
        return tuple(parts)

    def _pick(self, shapes: tuple[Shape, ...], weights: list[int]) -> Shape:
        return shapes[0] if len(shapes) == 1 else self.random.choices(shapes, weights)[0]

    def leaf(self, what: Leaf, name: object = None, index: int = 0, wide: int = 0) -> str:
        """Draw one piece of content; the larger `wide`, the longer than the examples'."""
        random = self.random
        match what:
            case Chars():
                drawn = "".join(
                    random.choice(_CLASSES[c]) if c in _CLASSES else c for c in what.pattern
                )
                return drawn + "".join(random.choice(string.digits) for _ in range(wide))
            case Date():
                return self._date(what, name)
            case Word():
                joints = ("", *what.joints, *"-" * wide)
                return "".join(joint + what.cased(random.choice(nouns())) for joint in joints)
            case Name():
                names = first_names() if what.part == "first" else last_names()
                return "-".join(random.choice(names) for _ in range(wide + 1))
            case Text():
                return self._text(what, wide)
            case Letters():
                found = "".join(
                    random.choice(letters(what.script, case == "u")) for case in what.cases
                )
                more = (random.choice(letters(what.script)) for _ in range(wide))
                return found + "".join(more)
            case Address():
                return self._address(what)
            case Counter():
                return str(what.start + what.step * index).zfill(what.width)
            case Choice():
                return random.choice(what.values)
            case _:
                return str(self.count)

    def _date(self, what: Date, name: object) -> str:
        before = self._state.get(name)
        if what.gap and before is not None:
            when = before + timedelta(seconds=self.random.uniform(0.1, 1.9) * what.gap)
        else:
            when = _START + timedelta(seconds=self.random.randrange(_SPAN))
        self._state[name] = when
        return DATES[what.form].write(when)

    def _text(self, what: Text, wide: int) -> str:
        words, starts = prose(self.haystack)
        start = self.random.choice(starts)
        chosen = [words[(start + i) % len(words)] for i in range(what.words + wide)]
        first = chosen[0]
        chosen[0] = (first[0].upper() if what.capital else first[0].lower()) + first[1:]
        return " ".join(chosen)

    def _address(self, what: Address) -> str:
        random = self.random
        if what.kind == "ip":
            return ".".join(str(random.randint(1, 254)) for _ in range(4))

        def word() -> str:
            return random.choice(nouns())

        if what.kind == "email":
            return f"{random.choice(first_names()).lower()}.{word()}@{word()}.com"
        return f"{what.kind}://{word()}-{word()}.com" + "".join(
            f"/{word()}{random.randrange(100)}" for _ in range(what.parts)
        )
