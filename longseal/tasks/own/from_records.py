"""A format from contexts that are records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from longseal.errors import LongsealError
from longseal.tasks.own.asks import Linked, checked, keyed, link
from longseal.tasks.own.examples import Example, answer_tokens
from longseal.tasks.own.format import Format, Record, Ref, Template
from longseal.tasks.own.frames import all_words, frame, needle, turns
from longseal.tasks.own.records import Cut, Unit
from longseal.tasks.own.tokens import Marks

_LONGEST_CYCLE = 8


@dataclass
class _Core:
    """The records of each example, without what stands before and after them."""

    units: list[list[Unit]]
    heads: list[str]
    tails: list[str]
    between: list[str]


def from_records(examples: Sequence[Example], marks: Marks, found: Cut) -> Format:
    """Find the record that each question is about, and what stands around the records.

    Raises:
        LongsealError: an answer is in none, or a question does not say which it means.
    """
    home = {id(unit): i for i, kind in enumerate(found.kinds) for unit in kind.units}
    templates: list[Template] = []
    for kind in found.kinds:
        if len(kind.units) == 1:
            kind.template, kind.units[0].values = all_words(kind.units[0])
        templates.append(kind.template)
    asked: list[tuple[Unit, Linked]] = []
    for i in range(len(examples)):
        unit, linked = _asked(found.units[i], home, templates, i, examples, marks)
        same = [u for u in found.units[i] if home[id(u)] == home[id(unit)]]
        if len(same) > 1 and not any(isinstance(part, Ref) for part in linked.question):
            raise LongsealError(
                f"example {i + 1}: its question names nothing of the record that answers it, so "
                "that the answer could stand in any; a question about a place or a sum cannot be "
                "made anew"
            )
        asked.append((unit, linked))
    wanted = {id(unit) for unit, _ in asked}
    core = _core(found, home, wanted)
    left = [unit for units in core.units for unit in units]
    shares = Counter(home[id(unit)] for unit in left)
    for number in {home[id(unit)] for unit, _ in asked}:
        alone = sum(id(unit) in wanted for unit in left if home[id(unit)] == number)
        if shares[number] == alone and len(shares) > 1:
            shares[number] = 0  # a needle: there only to be asked for
    used = sorted({home[id(unit)] for unit in left})
    places = {number: i for i, number in enumerate(used)}
    asked_of = {k: [linked for unit, linked in asked if home[id(unit)] == k] for k in used}
    records = [Record(template=keyed(templates[k], asked_of[k]), share=shares[k]) for k in used]
    counts = [len(units) for units in core.units]
    separators = Counter(core.between)
    usual = "\n\n" if found.name == "blocks" else " " if found.name == "sentences" else "\n"
    asks = Counter(linked.ask(places[home[id(unit)]]) for unit, linked in asked)
    return Format(
        head=frame(core.heads, marks, counts),
        tail=frame(core.tails, marks, counts),
        separator=separators.most_common(1)[0][0] if separators else usual,
        records=tuple(records),
        order=_cycle([[places[home[id(u)]] for u in units] for units in core.units], records),
        asks=tuple(ask.model_copy(update={"weight": n}) for ask, n in asks.items()),
        before=turns(examples, marks),
        answer_tokens=answer_tokens(example.answer for example in examples),
    )


def _asked(
    units: Sequence[Unit],
    home: dict[int, int],
    templates: list[Template],
    number: int,
    examples: Sequence[Example],
    marks: Marks,
) -> tuple[Unit, Linked]:
    """The record that a question is about, and the ties to it."""
    example = examples[number]
    question, answer = example.question, example.answer
    best: tuple[Unit, Linked] | None = None
    for unit in units:
        linked = link(unit.values, templates[home[id(unit)]], question, answer, marks)
        if linked is not None and (best is None or linked.reach > best[1].reach):
            best = unit, linked
    sizes = Counter(home.values())
    if best is not None and sizes[home[id(best[0])]] > 1:
        return checked(best, number, examples)
    # Within free text, or a record without a like: it keeps its words, or nothing would say what is
    # asked; the answer and the data in it vary.
    tied = []
    for unit in units if best is None else [best[0]]:
        made = needle(unit, question, answer)
        linked = made and link(made[1], made[0], question, answer, marks)
        if made and linked:
            tied.append((linked.reach, made, unit, linked))
    if tied:
        _, (template, values), unit, linked = max(tied, key=lambda each: each[0])
        unit.values = values
        home[id(unit)] = len(templates)
        templates.append(template)
        best = unit, linked
    return checked(best, number, examples)


def _core(found: Cut, home: dict[int, int], wanted: set[int]) -> _Core:
    """Cut off units before the first record and after the last one, such as headings."""
    main = Counter(home[id(unit)] for units in found.units for unit in units).most_common(1)[0][0]
    made = _Core([], [], [], [])
    for text, spans, units in zip(found.texts, found.spans, found.units, strict=True):
        places = [i for i, u in enumerate(units) if home[id(u)] == main or id(u) in wanted]
        first, last = places[0], places[-1]
        kinds = [home[id(unit)] for unit in units]
        # A kind that comes again among the records is one of them.
        while first > 0 and kinds[first - 1] in kinds[first : last + 1]:
            first -= 1
        while last + 1 < len(units) and kinds[last + 1] in kinds[first : last + 1]:
            last += 1
        made.units.append(list(units[first : last + 1]))
        made.heads.append(text[: spans[first][0]])
        made.tails.append(text[spans[last][1] :])
        made.between += [text[a[1] : b[0]] for a, b in pairwise(spans[first : last + 1])]
    return made


def _cycle(orders: list[list[int]], records: Sequence[Record]) -> tuple[int, ...]:
    """The order of types that comes over and over; empty where there is none."""
    plain = [[kind for kind in order if records[kind].share] for order in orders]
    longest = max(plain, key=len)
    for period in range(1, _LONGEST_CYCLE + 1):
        cycles = period == 1 or len(longest) >= 2 * period
        if cycles and all(
            order == [longest[i % period] for i in range(len(order))] for order in plain
        ):
            return tuple(longest[:period])
    return ()
