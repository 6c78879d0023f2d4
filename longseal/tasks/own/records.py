"""Records in contexts: which way to cut them, and which records are of one type."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher

from longseal.tasks.own.align import align
from longseal.tasks.own.format import Slot, Template
from longseal.tasks.own.leaves import Text
from longseal.tasks.own.slots import slot
from longseal.tasks.own.split import MARKED, Span, candidates
from longseal.tasks.own.tokens import WORDS, Marks, Token, Tokens, runs

_ALIKE = 0.6  # of two records' tokens, for them to be of one type
_MOST_TYPES = 64
_UNIT_COST = 3  # characters that one more record, or one more slot, is worth
_TYPE_COST = 10

#: What a text has in each slot: the shape's number and the texts of its parts.
Values = list[tuple[int, list[str]]]


@dataclass
class Unit:
    """A record as an example (its number) has it."""

    text: str
    tokens: Tokens
    example: int
    values: Values = field(default_factory=list)


@dataclass
class Kind:
    """A type of record, and its members."""

    units: list[Unit]
    template: Template = field(default_factory=lambda: Template(literals=("",)))

    def learn(self) -> Kind:
        """Find the template, and what each member has in its slots."""
        literals, gaps = align([unit.tokens for unit in self.units])
        slots: list[Slot] = []
        for unit in self.units:
            unit.values = []
        for gap in gaps:
            by_example: dict[int, list[Tokens]] = {}
            for unit, value in zip(self.units, gap, strict=True):
                by_example.setdefault(unit.example, []).append(value)
            made, values = slot(list(by_example.values()))
            slots.append(made)
            for unit, new in zip(self.units, values, strict=True):
                unit.values.append(new)
        self.template = Template(literals=tuple(literals), slots=tuple(slots))
        return self

    @property
    def structured(self) -> bool:
        """Whether its members are records, and no free sentences that end alike."""
        if len(self.units) < 2:
            return False
        fixed = sum(len(each.strip().rstrip(".!?。！？")) for each in self.template.literals)
        shapes = [shape for each in self.template.slots for shape in each.shapes]
        free = any(isinstance(part, Text) for shape in shapes for part in shape.parts)
        return fixed >= 3 if free else True

    def cost(self) -> float:
        """Characters that describe the members: the template once, and what varies each time."""
        slots = len(self.template.slots)
        varies = sum(len(text) for unit in self.units for _, texts in unit.values for text in texts)
        fixed = sum(map(len, self.template.literals)) + _TYPE_COST
        if len(self.units) == 1:
            return len(self.units[0].text) + _TYPE_COST + _UNIT_COST
        return fixed + varies + _UNIT_COST * (len(self.units) + slots)


@dataclass
class Cut:
    """A context of each example, cut into units.

    Attributes:
        name: the way it was cut.
        texts: the contexts.
        spans: where the units stand.
        units: the units, example by example.
        kinds: the types of all units.
    """

    name: str
    texts: Sequence[str]
    spans: list[list[Span]]
    units: list[list[Unit]]
    kinds: list[Kind]

    def covered(self) -> float:
        """Share of the text that is in records."""
        inside = sum(len(u.text) for kind in self.kinds if kind.structured for u in kind.units)
        return inside / max(1, sum(map(len, self.texts)))

    def cost(self) -> float:
        """Characters that describe the contexts when cut so."""
        outside = sum(map(len, self.texts)) - sum(len(u.text) for us in self.units for u in us)
        return outside / 4 + sum(kind.cost() for kind in self.kinds)


def cut(texts: Sequence[str], marks: Marks) -> Cut | None:
    """Cut contexts into records, the way that describes them in the fewest characters.

    Returns:
        None where no way finds records in half of the text: then it is prose.
    """
    best: Cut | None = None
    for name, spans in candidates(list(texts)):
        units = [
            [Unit(text[a:b], marks.tokens(text[a:b]), i) for a, b in found]
            for i, (text, found) in enumerate(zip(texts, spans, strict=True))
        ]
        kinds = [kind.learn() for kind in _kinds([unit for each in units for unit in each])]
        made = Cut(name, texts, spans, units, kinds)
        if made.covered() < 0.5:
            continue
        if name in MARKED:
            return made
        if best is None or made.cost() < best.cost():
            best = made
    return best


def alike(units: Sequence[Unit]) -> list[list[Unit]]:
    """Units in groups of one type each."""
    return [kind.units for kind in _kinds(units)]


def _kinds(units: Sequence[Unit]) -> list[Kind]:
    made: list[tuple[Kind, list[str], tuple[str, ...]]] = []
    for unit in units:
        keys, form = _keys(unit.tokens), _form(unit.tokens)
        for kind, others, other in made[:_MOST_TYPES]:
            if (form == other and _telling(form)) or _alike(keys, others):
                kind.units.append(unit)
                break
        else:
            made.append((Kind([unit]), keys, form))
    return [kind for kind, _, _ in made]


def _keys(found: Tokens) -> list[str]:
    """Words as they are, values by their kind."""
    said = {"punct", "kept", "cjk", *WORDS}
    return [t.text if t.kind in said else f"\0{t.kind}" for t in found if t.kind != "space"]


def _alike(one: list[str], other: list[str]) -> bool:
    words = {key for key in one if key[0] == "\0" or key[0].isalnum()}
    if not words & set(other):  # a table's head has its rows' marks, but nothing else of them
        return False
    if 2 * min(len(one), len(other)) < _ALIKE * (len(one) + len(other)):
        return False
    shared = sum((Counter(one) & Counter(other)).values())
    if 2 * shared < _ALIKE * (len(one) + len(other)):
        return False
    return SequenceMatcher(None, one, other, autojunk=False).ratio() > _ALIKE


def _form(found: Tokens) -> tuple[str, ...]:
    """Marks as they are, phrases and values by what they are."""
    made: list[str] = []
    for token in runs(found):
        kind = _role(token)
        if kind == "words" and made[-1:] == ["words"]:
            continue
        if kind == "space" and made[-1:] == ["words"]:
            continue
        made.append(kind)
    return tuple(kind for kind in made if kind != "space")


def _role(token: Token) -> str:
    if token.kind in ("punct", "newline", "space"):
        return token.text if token.kind == "punct" else token.kind
    if token.kind in WORDS or token.kind in ("cjk", "kept"):
        return "words"
    return {"int": "number", "decimal": "number"}.get(token.kind, token.kind)


def _telling(form: tuple[str, ...]) -> bool:
    """Whether records of this form are surely of one type: free sentences are not."""
    if len(form) == 2 and form[0] == "words":  # short sentences, by their full stop
        return False
    return "text" not in form or len([kind for kind in form if kind != "text"]) >= 3
