"""A task in the user's own format: samples drawn anew, of any length."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random

from longseal.tasks.haystack import Haystack, built_in, sentence_ends
from longseal.tasks.own.drawing import Drawing, Drawn, Write
from longseal.tasks.own.format import Ask, AskPart, Format, Ref
from longseal.tasks.places import asked_places
from longseal.tasks.sample import ExhaustedError, Question, Recorded, Sample, Task, Wanted

_TRIES = 50
#: Writes content of a question's record: which question, and the sample's seed.
Writes = Callable[[str, int], Write]


def score(prediction: str, question: Question) -> Mapping[str, float]:
    """Judge a prediction, case and spacing left aside.

    `contains`: the share of the expected values that stand in it. `exact`: it is the whole answer,
    or the expected values and nothing else.
    """
    said = _plain(prediction)
    wanted = [_plain(value) for value in question.expected]
    inside = sum(_stands(value, said) for value in wanted) / len(wanted)
    whole = said.rstrip(".") in (_plain(question.answer).rstrip("."), " ".join(wanted))
    return {"contains": inside, "exact": float(whole)}


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def _stands(value: str, said: str) -> bool:
    """Whether a value stands in a text and is no part of a longer number or word there."""
    left = r"(?<![a-z0-9])(?<!\d[.,])" if value[0].isascii() and value[0].isalnum() else ""
    right = r"(?![a-z0-9])(?![.,]\d)" if value[-1].isascii() and value[-1].isalnum() else ""
    if value[-1].isdigit():  # a unit may follow: 12ms
        right = r"(?!\d|[.,]\d)"
    return re.search(left + re.escape(value) + right, said) is not None


class OwnTask(Task):
    """Find what was asked for in records, or in prose, of the user's own format.

    Args:
        writes: writes some of the content of what is asked for, in the place of drawing it.
    """

    about = "the user's own format, content drawn anew"
    metric = "contains"

    def __init__(
        self,
        name: str,
        form: Format,
        haystack: Haystack | None = None,
        writes: Writes | None = None,
    ) -> None:
        self.name = name
        self.format = form
        self.unit = "words" if form.prose else "records"
        self.max_new_tokens = form.answer_tokens
        self._haystack = haystack or built_in()
        self._writes = writes

    def sample(self, wanted: Wanted) -> Sample:
        """Draw the records (or prose) and ask for some of them.

        Raises:
            ExhaustedError: there are too few different keys for so many records.
        """
        random = wanted.random("asked")
        asks = self._choose(wanted, random)
        make = self._prose if self.format.prose else self._records
        context, drawn = make(wanted, asks, random)
        free = Drawing(wanted.random("questions"), haystack=self._haystack)
        questions = tuple(
            _question(ask, record, free) for ask, record in zip(asks, drawn, strict=True)
        )
        return self._turns(wanted, context, questions)

    def score(self, prediction: str, question: Question) -> Mapping[str, float]:
        """`contains` and `exact`."""
        return score(prediction, question)

    def _turns(self, wanted: Wanted, context: str, questions: tuple[Question, ...]) -> Sample:
        drawing = Drawing(wanted.random("turns"), haystack=self._haystack)
        here = all(turn.template is not None for turn in self.format.before)
        before = tuple(
            (
                turn.role,
                context
                if turn.template is None
                else drawing.record(turn.template, ("turn", i)).text,
            )
            for i, turn in enumerate(self.format.before)
        )
        return Sample(context if here else "", questions, before)

    def _choose(self, wanted: Wanted, random: Random) -> list[Ask]:
        """The questions' kinds: several of one kind only where they name what they mean."""
        kinds = self.format.asks
        chosen: list[Ask] = []
        most = wanted.questions if self.format.prose else min(wanted.questions, wanted.size)
        for _ in range(most):
            taken = {ask.record for ask in chosen if not ask.keyed}
            left = [
                ask
                for ask in kinds
                if ask.record not in taken
                and (ask.keyed or all(other.record != ask.record for other in chosen))
            ]
            if left:
                chosen += random.choices(left, [ask.weight for ask in left])
        return chosen

    def _records(
        self, wanted: Wanted, asks: Sequence[Ask], random: Random
    ) -> tuple[str, list[Drawn]]:
        """Records in a row, and those among them that are asked for."""
        form, size = self.format, wanted.size
        types = list(self._types(wanted))
        places = asked_places(random.sample(range(size), len(asks)), size, wanted.depth)
        at = dict(zip(places, asks, strict=True))
        for place, ask in at.items():
            types[place] = ask.record
        drawing = Drawing(wanted.random("records"), size, self._haystack)
        head = drawing.record(form.head, "head").text
        tail = drawing.record(form.tail, "tail").text
        seen: dict[int, int] = {}
        drawn: list[Drawn] = []
        for place, kind in enumerate(types):
            asked = at.get(place)
            write = self._write(wanted, places.index(place)) if asked else None
            shapes = dict(asked.shapes) if asked else None
            index = seen.get(kind, 0)
            seen[kind] = index + 1
            template = form.records[kind].template
            drawn.append(drawing.record(template, kind, index, shapes, write))
        for place, ask in at.items():
            if not ask.keyed:
                continue
            others = (d for i, d in enumerate(drawn) if types[i] == ask.record and i != place)
            taken = {_names(ask, other) for other in others}
            template, index = form.records[ask.record].template, types[:place].count(ask.record)
            for _ in range(_TRIES):
                if _names(ask, drawn[place]) not in taken:
                    break
                drawn[place] = drawing.record(template, "again", index, dict(ask.shapes))
            else:
                raise ExhaustedError(
                    f"the task {self.name} has too few different keys for {size} records: give "
                    "examples whose questions name something that is longer, or ask for less"
                )
        texts = [record.text for record in drawn]
        context = head + form.separator.join(texts) + tail
        return context, [drawn[place] for place in places]

    def _types(self, wanted: Wanted) -> Iterator[int]:
        form = self.format
        if form.order:
            yield from (form.order[i % len(form.order)] for i in range(wanted.size))
        else:
            shares = [record.share for record in form.records]
            yield from wanted.random("types").choices(range(len(shares)), shares, k=wanted.size)

    def _prose(
        self, wanted: Wanted, asks: Sequence[Ask], random: Random
    ) -> tuple[str, list[Drawn]]:
        """Prose with needles in it, and the needles."""
        form = self.format
        drawing = Drawing(wanted.random("needles"), wanted.size, self._haystack)
        drawn = [
            drawing.record(
                form.records[ask.record].template,
                ask.record,
                shapes=dict(ask.shapes),
                write=self._write(wanted, i),
            )
            for i, ask in enumerate(asks)
        ]
        text = self._haystack.text(wanted.size, wanted.random("prose")).rstrip()
        depths = [random.random() for _ in asks]
        if wanted.depth is not None:
            depths[0] = wanted.depth
        body = _hide(text, [record.text for record in drawn], depths, form.separator)
        head = drawing.record(form.head, "head").text
        tail = drawing.record(form.tail, "tail").text
        return head + body + tail, drawn

    def _write(self, wanted: Wanted, question: int) -> Write | None:
        return None if self._writes is None else self._writes(wanted.seed, question)


class OwnFile(Recorded):
    """Samples in the user's own format, as a file has them."""

    about = "the user's own format, as it stands in a file"
    metric = "contains"

    def __init__(self, name: str, samples: Sequence[Sample], max_new_tokens: int) -> None:
        super().__init__(name, samples)
        self.max_new_tokens = max_new_tokens

    def score(self, prediction: str, question: Question) -> Mapping[str, float]:
        """As made samples are scored."""
        return score(prediction, question)


def _hide(text: str, needles: Sequence[str], depths: Sequence[float], separator: str) -> str:
    """Prose with needles between its sentences, each as near to its depth as they allow."""
    ends = [0, *sentence_ends(f"{text} ")]
    cuts = [min(ends, key=lambda end, d=depth: abs(end - d * len(text))) for depth in depths]  # type: ignore[misc]  # mypy takes no default in a lambda
    made, start = "", 0
    for cut, needle in sorted(zip(cuts, needles, strict=True), key=lambda each: each[0]):
        made = _glued(_glued(made, text[start:cut], ""), needle, separator)
        start = cut
    rest = text[start:]
    return made + rest if rest[:1].isspace() else _glued(made, rest, separator)


def _glued(left: str, right: str, separator: str) -> str:
    return left + ("" if not left or not right or left[-1].isspace() else separator) + right


def _names(ask: Ask, record: Drawn) -> tuple[str, ...]:
    """What a question calls the record that it means."""
    refs = (part for part in ask.question if isinstance(part, Ref))
    return tuple(record.value(ref.slot, ref.part) for ref in refs if _has(record, ref))


def _has(record: Drawn, ref: Ref) -> bool:
    return ref.part is None or ref.part < len(record.slots[ref.slot])


def _question(ask: Ask, record: Drawn, free: Drawing) -> Question:
    answer = [_part(part, record, free) for part in ask.answer]
    return Question(
        text="".join(_part(part, record, free) for part in ask.question),
        answer="".join(answer),
        expected=_sought(ask, answer),
        evidence=record.text,
    )


def _sought(ask: Ask, answer: Sequence[str]) -> tuple[str, ...]:
    """The values that an answer is judged by; those that a mark parts are one (`+1 555 01`)."""
    found: list[str] = []
    last = -9
    for i in ask.sought:
        if i == last + 2 and len(answer[i - 1]) < 3 and not any(map(str.isalnum, answer[i - 1])):
            found[-1] += answer[i - 1] + answer[i]
        else:
            found.append(answer[i])
        last = i
    return tuple(dict.fromkeys(found))


def _part(part: AskPart, record: Drawn, free: Drawing) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, Ref):
        return part.cased(record.value(part.slot, part.part))
    return free.leaf(part)
