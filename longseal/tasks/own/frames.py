"""Templates of what stands once: the text around the records, earlier turns, needles."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from longseal.tasks.own.asks import DATA, is_data
from longseal.tasks.own.examples import Example
from longseal.tasks.own.format import Shape, Slot, Template, Turn
from longseal.tasks.own.leaves import Count
from longseal.tasks.own.records import Kind, Unit, Values
from longseal.tasks.own.slots import slot
from longseal.tasks.own.tokens import LAYOUT, WORDS, Marks, Token, Tokens

#: A template, and what a text has in its slots.
Filled = tuple[Template, Values]


def frame(texts: Sequence[str], marks: Marks, counts: Sequence[int] = ()) -> Template:
    """A template of texts that stand once in each example.

    What differs between examples is content; in one example alone, what is data by its looks is
    (and with `counts`, numbers that say how many records there are).
    """
    units = [Unit(text, marks.tokens(text), i) for i, text in enumerate(texts)]
    if len(set(texts)) > 1:
        return Kind(units).learn().template
    tokens = units[0].tokens
    count = str(counts[0]) if len(set(counts)) == 1 and counts[0] > 2 else None
    varied = [i for i, t in enumerate(tokens) if t.varied or _data(t) or t.text == count]
    made, _ = sliced(tokens, lambda i: i in varied)
    counted = Slot(shapes=(Shape(parts=(Count(),)),))
    slots = [
        counted if tokens[i].text == count and not tokens[i].varied else each
        for i, each in zip(varied, made.slots, strict=True)
    ]
    return made.model_copy(update={"slots": tuple(slots)})


def _data(token: Token) -> bool:
    return is_data(token) and token.kind != "kept"


def turns(examples: Sequence[Example], marks: Marks) -> tuple[Turn, ...]:
    """The turns before the user's last one; where the context stands, without a template."""
    made = []
    for i, (role, _) in enumerate(examples[0].before):
        texts = [example.before[i][1] for example in examples]
        here = i == examples[0].turn
        made.append(Turn(role=role, template=None if here else frame(texts, marks)))
    return tuple(made)


def all_words(unit: Unit) -> Filled:
    """A template of a record that has no like: its marks are format, its words are not."""
    return sliced(unit.tokens, lambda i: not unit.tokens[i].literal)


def needle(unit: Unit, question: str, answer: str) -> Filled | None:
    """A template of a passage that stands alone: its words are format, the answer and data are not.

    Names count as data. The answer is what it shares with the passage, at its longest.
    """
    tokens = unit.tokens
    span = _shared(tokens, answer, question)
    if span is None:
        return None
    start, end = span

    def varies(i: int) -> bool:
        token = tokens[i]
        if start <= i < end or token.varied:
            return True
        if token.kind == "kept":
            return False
        return token.kind in DATA or token.kind == "int" or _name(tokens, i)

    return sliced(tokens, varies, span)


def sliced(
    tokens: Tokens, varies: Callable[[int], bool], whole: tuple[int, int] = (0, 0)
) -> Filled:
    """A template of one text: what varies is in slots, `whole` in one of its own."""
    literals = [""]
    cells: list[list[Token]] = []
    last = -2
    for i, token in enumerate(tokens):
        if not varies(i):
            literals[-1] += token.text
            continue
        if i == last + 1 and whole[0] < i < whole[1]:
            cells[-1].append(token)
        else:
            cells.append([token])
            literals.append("")
        last = i
    made: list[Slot] = []
    values: Values = []
    for cell in cells:
        new, (value,) = slot([[cell]])
        made.append(new)
        values.append(value)
    return Template(literals=tuple(literals), slots=tuple(made)), values


def _shared(tokens: Tokens, answer: str, question: str) -> tuple[int, int] | None:
    """The longest stretch of a passage that the answer has and the question does not."""
    wanted = [token.text for token in Marks().tokens(answer.strip())]
    best: tuple[int, tuple[int, int]] = (0, (0, 0))
    for start in range(len(tokens)):
        for place in (i for i, text in enumerate(wanted) if text == tokens[start].text):
            size = 0
            while (
                start + size < len(tokens)
                and place + size < len(wanted)
                and tokens[start + size].text == wanted[place + size]
            ):
                size += 1
            end = start + size
            while end > start and tokens[end - 1].kind in LAYOUT:
                end -= 1
            first = start
            while first < end and tokens[first].literal:
                first += 1
            new = sum(
                len(t.text) for t in tokens[first:end] if not t.literal and t.text not in question
            )
            if new > best[0]:
                best = (new, (first, end))
    return best[1] if best[0] else None


def _name(tokens: Tokens, i: int) -> bool:
    """Whether a word is a name by its looks: capitalised, and not because it begins a sentence."""
    token = tokens[i]
    if token.kind not in WORDS or token.kind == "lower" or token.literal:
        return False
    before = [token for token in tokens[:i] if token.kind != "space"]
    return bool(before) and before[-1].text not in {".", "!", "?", ":", "\n", '"', "“"}
