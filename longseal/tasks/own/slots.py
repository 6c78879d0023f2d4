"""A slot from the values it had: which are format after all, and how the others are drawn."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Sequence
from itertools import pairwise

from longseal.tasks.own.dates import moment
from longseal.tasks.own.format import Part, Shape, Slot
from longseal.tasks.own.leaves import Choice, Counter, Date, Letters, Name, leaf
from longseal.tasks.own.tokens import WORDS, Token, Tokens, runs


def slot(examples: Sequence[Sequence[Tokens]]) -> tuple[Slot, list[tuple[int, list[str]]]]:
    """A slot from its values, in order, example by example.

    Returns:
        The slot, and for each value which shape it has and the texts of its parts (in a slot drawn
        as a whole, such as a counter's, that is one part).
    """
    values = [value for example in examples for value in example]
    texts = _texts(values)
    unique = all(len(set(_texts(e))) == len(e) for e in examples)
    whole = _counter(examples) or _choice(values, texts) or _rising(examples)
    if whole is not None:
        made = Slot(shapes=(Shape(parts=(whole,)),), unique=unique, seen=len(values))
        return made, [(0, [text]) for text in texts]
    parted = _grouped([runs(value) for value in values])
    shapes = Tally(tuple(part for part, _ in value) for value in parted)
    common = [parts for parts, _ in shapes.most_common()]
    made = Slot(
        shapes=tuple(Shape(parts=parts, weight=shapes[parts]) for parts in common),
        unique=unique,
        seen=len(values),
    )
    places = {parts: i for i, parts in enumerate(common)}
    return made, [
        (places[tuple(p for p, _ in value)], [text for _, text in value]) for value in parted
    ]


def _grouped(values: Sequence[Tokens]) -> list[list[tuple[Part, str]]]:
    """Parts of each value; of values built alike, what begins or ends all ids alike is literal."""
    alike: dict[tuple[str, ...], list[int]] = {}
    for i, value in enumerate(values):
        built = tuple(token.text if token.literal else f"\0{token.kind}" for token in value)
        alike.setdefault(built, []).append(i)
    made: list[list[tuple[Part, str]]] = [[] for _ in values]
    for group in alike.values():
        for column in range(len(values[group[0]])):
            tokens = [values[i][column] for i in group]
            before = values[group[0]][max(0, column - 2) : column]
            for i, cell in zip(group, _column(tokens, before), strict=True):
                made[i] += cell
    return [_joined(value) for value in made]


def _column(tokens: Tokens, before: Tokens) -> list[list[tuple[Part, str]]]:
    """Parts of the tokens that stand at one place in values built alike, value by value.

    Args:
        before: the two tokens before this place, in the first of the values.
    """
    first = tokens[0]
    same = all(token.text == first.text for token in tokens)
    if not any(token.varied for token in tokens) and (first.literal or (same and len(tokens) > 2)):
        return [[(token.text, token.text)] for token in tokens]
    if first.kind == "id" and len(tokens) > 1 and not same:
        start, end = _affixes([token.text for token in tokens])
        cells = []
        for token in tokens:
            stem = token.text[start : len(token.text) - end]
            inner: Part = leaf(Token(stem, "int" if stem.isdigit() else "id"))
            if stem.isdigit() and start:  # digits of an id may begin with zero
                inner = leaf(Token("0" + stem[1:], "int"))
            ends = token.text[len(token.text) - end :] if end else ""
            cells.append([(token.text[:start], token.text[:start]), (inner, stem), (ends, ends)])
        return cells
    follows = [each.kind for each in before] == ["title", "space"] and first.kind == "title"
    named = follows and before[1].text == " " and len(first.text) > 1
    return [[(Name(part="last") if named else leaf(token), token.text)] for token in tokens]


def _joined(value: list[tuple[Part, str]]) -> list[tuple[Part, str]]:
    """Successive literals as one, ideographs too; a title before a last name is a first name."""
    made: list[tuple[Part, str]] = []
    for part, text in value:
        if isinstance(part, str) and made and isinstance(made[-1][0], str):
            made[-1] = (made[-1][0] + part, made[-1][1] + text)
        elif isinstance(part, Letters) and made and _same_script(made[-1][0], part):
            cases = getattr(made[-1][0], "cases", "") + part.cases
            made[-1] = (Letters(script=part.script, cases=cases), made[-1][1] + text)
        elif part != "":
            if part == Name(part="last") and len(made) > 1 and made[-1][0] == " ":
                earlier, said = made[-2]
                if not isinstance(earlier, str) and earlier.kind == "word":
                    made[-2] = (Name(part="first"), said)
            made.append((part, text))
    return made


def _same_script(part: Part, other: Letters) -> bool:
    return isinstance(part, Letters) and part.script == other.script


def _affixes(texts: Sequence[str]) -> tuple[int, int]:
    """Lengths of what begins and what ends all texts, cut where letters meet digits or marks."""

    def kind(char: str) -> str:
        return "digit" if char.isdigit() else "letter" if char.isalpha() else char

    def shared(texts: Sequence[str], room: int) -> int:
        length = 0
        while length < room and len({text[length] for text in texts}) == 1:
            length += 1
        while length and any(kind(text[length]) == kind(text[length - 1]) for text in texts):
            length -= 1
        return length

    room = min(map(len, texts)) - 1
    start = shared(texts, room)
    return start, shared([text[::-1] for text in texts], room - start)


def _texts(values: Sequence[Tokens]) -> list[str]:
    return ["".join(token.text for token in value) for value in values]


def _choice(values: Sequence[Tokens], texts: Sequence[str]) -> Choice | None:
    """A few words that come back: levels of a log, states of an order."""
    single = all(len(v) == 1 and v[0].kind in WORDS and not v[0].varied for v in values)
    few = 4 <= 2 * len(set(texts)) <= len(texts) and len(set(texts)) <= 12
    return Choice(values=tuple(sorted(set(texts)))) if single and few else None


def _counter(examples: Sequence[Sequence[Tokens]]) -> Counter | None:
    """Numbers that rise by one step from the same start in every example."""
    if not all(len(v) == 1 and v[0].kind == "int" and not v[0].varied for e in examples for v in e):
        return None
    rows = [[int(value[0].text) for value in example] for example in examples]
    first = rows[0][:2]
    if len(max(rows, key=len)) < 3 or len(first) < 2 or first[0] >= first[1]:
        return None
    step = first[1] - first[0]
    if first[0] not in (0, 1, step):  # where it begins elsewhere, that is content
        return None
    if any(row != [first[0] + step * i for i in range(len(row))] for row in rows):
        return None
    text = examples[0][0][0].text
    return Counter(start=first[0], step=step, width=len(text) if text[0] == "0" else 1)


def _rising(examples: Sequence[Sequence[Tokens]]) -> Date | None:
    """Dates, year first, that never go back: a log's."""
    values = [value for example in examples for value in example]
    if not all(len(v) == 1 and v[0].kind == "date" and not v[0].varied for v in values):
        return None
    made = {leaf(value[0]) for value in values}
    form = made.pop()
    if made or not isinstance(form, Date) or not form.form.startswith("2024-03-05"):
        return None
    gaps: list[float] = []
    for example in examples:
        when = [moment(text) for text in _texts(example)]
        gaps += [(b - a).total_seconds() for a, b in pairwise(when)]
    if len(gaps) < 3 or min(gaps) < 0 or sum(gaps) == 0:
        return None
    return Date(form=form.form, gap=sum(gaps) / len(gaps))
