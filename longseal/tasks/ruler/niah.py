"""Needles in a haystack: values of keys, in noise, in prose, or among needles of their like."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Literal

from longseal.tasks.haystack import Haystack, sentence_ends
from longseal.tasks.ruler.noise import LINE, hide_in_lines, noise
from longseal.tasks.ruler.scoring import Ruler, listed
from longseal.tasks.ruler.words import Kind, things
from longseal.tasks.sample import Question, Sample, Wanted

_DEPTHS = [round(100 * step / 39) for step in range(40)]  # percent, as RULER rounds them
_NEEDLE = "One of the special magic {kind}s for {key} is: {value}."
_ONE = (
    "A special magic {kind} is hidden within the following text. Make sure to memorize it. "
    "I will quiz you about the {kind} afterwards.\n",
    "\nWhat is the special magic {kind} for {query} mentioned in the provided text?",
    " The special magic {kind} for {query} mentioned in the provided text is",
)
_MANY = (
    "Some special magic {kind}s are hidden within the following text. Make sure to memorize it. "
    "I will quiz you about the {kind}s afterwards.\n",
    "\nWhat are all the special magic {kind}s for {query} mentioned in the provided text?",
    " The special magic {kind}s for {query} mentioned in the provided text are",
)


@dataclass(frozen=True)
class Needles:
    """What is hidden, and in what.

    Attributes:
        keys: keys that are hidden at least.
        values: of each key.
        asked: keys that a question is about.
    """

    about: str
    haystack: Literal["noise", "essay", "needles"] = "essay"
    key: Kind = "word"
    value: Kind = "number"
    keys: int = 1
    values: int = 1
    asked: int = 1

    @property
    def single(self) -> bool:
        """Whether a question has one answer."""
        return self.values * self.asked == 1


VARIANTS = {
    "niah_single_1": Needles("a number in noise", "noise"),
    "niah_single_2": Needles("a number in prose"),
    "niah_single_3": Needles("a UUID in prose", value="uuid"),
    "niah_multikey_1": Needles("one of four numbers in prose", keys=4),
    "niah_multikey_2": Needles("a number among thousands of such", "needles"),
    "niah_multikey_3": Needles("a UUID among thousands of such", "needles", "uuid", "uuid"),
    "niah_multivalue": Needles("four numbers of one key in prose", values=4),
    "niah_multiquery": Needles("four numbers of four keys in prose", keys=4, asked=4),
}
_UNITS = {"noise": "sentences of noise", "essay": "words", "needles": "needles"}


class Niah(Ruler):
    """Find the value of a key, hidden somewhere in a long text.

    A sample to tune on has a needle (or four) of its own for each of its questions; one to
    evaluate on has one question, as published. Keys and values are hidden once each.

    Args:
        variant: its name in `VARIANTS`.
        prose: the haystack of variants that hide in prose.
    """

    about = "values of keys, hidden in noise, in prose, or among others of their like"
    max_new_tokens = 128

    def __init__(self, variant: str, prose: Haystack) -> None:
        self.name = f"ruler/{variant}"
        self._needles = VARIANTS[variant]
        self._prose = prose
        self.unit = _UNITS[self._needles.haystack]

    def sample(self, wanted: Wanted) -> Sample:
        """Hide needles and ask for their values.

        With a depth, the first question's needle stands at the nearest of RULER's 40 depths (where
        a question has one answer).
        """
        needles = self._needles
        questions = wanted.questions if wanted.training else 1
        if needles.haystack != "essay":  # at most one before each line
            lines = -(-wanted.size // LINE) if needles.haystack == "noise" else wanted.size
            questions = min(questions, lines)
        random = wanted.random("needles")
        count = max(needles.keys, needles.asked * questions)
        keys = list(islice(things(needles.key, random), count))
        values = list(islice(things(needles.value, random), count * needles.values))
        pairs = list(zip(keys * needles.values, values, strict=True))
        asked = random.sample(keys, needles.asked * questions)
        haystack, pairs = self._hide(wanted, pairs, asked[0])
        context, *_ = _ONE if needles.single else _MANY
        return Sample(
            context=context.format(kind=needles.value) + haystack,
            questions=tuple(
                self._question(asked[i : i + needles.asked], pairs)
                for i in range(0, len(asked), needles.asked)
            ),
        )

    def _hide(
        self, wanted: Wanted, pairs: list[tuple[str, str]], first: str
    ) -> tuple[str, list[tuple[str, str]]]:
        """The haystack with its needles, and these in the order in which they stand there."""
        needles, random = self._needles, wanted.random("places")
        depth = _nearest(wanted.depth) if needles.single else None
        keys = [key for key, _ in pairs]
        if needles.haystack == "essay":
            text = self._prose.text(
                wanted.size, wanted.random("prose") if wanted.training else None
            )
            text = " ".join(text.split())
            places = random.sample(_DEPTHS * -(-len(pairs) // len(_DEPTHS)), len(pairs))
            if depth is not None:
                places[keys.index(first)] = depth
            placed = sorted(zip(places, pairs, strict=True))
            haystack = _hide_in_text(text, [(at, self._needle(*pair)) for at, pair in placed])
        else:
            lines = self._lines(wanted, keys)
            places = random.sample(range(len(lines)), len(pairs))
            if depth is not None:
                places[keys.index(first)] = int(len(lines) * depth / 100)
            placed = sorted(zip(places, pairs, strict=True))
            haystack = hide_in_lines(lines, [(at, self._needle(*pair)) for at, pair in placed])
        return haystack, [pair for _, pair in placed]

    def _lines(self, wanted: Wanted, but: list[str]) -> list[str]:
        if self._needles.haystack == "noise":
            return noise(wanted.size)
        random = wanted.random("haystack")
        keys = things(self._needles.key, random, but)
        values = things(self._needles.value, random)
        return [self._needle(next(keys), next(values)) for _ in range(wanted.size)]

    def _needle(self, key: str, value: str) -> str:
        return _NEEDLE.format(kind=self._needles.value, key=key, value=value)

    def _question(self, keys: list[str], pairs: list[tuple[str, str]]) -> Question:
        needles = self._needles
        values = [value for key in keys for other, value in pairs if other == key]
        _, text, prefix = _ONE if needles.single else _MANY
        said = {"kind": needles.value, "query": listed(keys)}
        return Question(
            text=text.format(**said),
            prefix=prefix.format(**said),
            answer=f" {listed(values)}.",
            expected=tuple(values),
            evidence=self._needle(keys[0], values[0]) if needles.single else "",
        )


def _nearest(depth: float | None) -> int | None:
    return None if depth is None else min(_DEPTHS, key=lambda step: abs(step - 100 * depth))


def _hide_in_text(text: str, needles: list[tuple[int, str]]) -> str:
    """Put needles between sentences, at depths in percent that do not fall.

    A needle at the very start or end has a space beyond it, as RULER's own have.
    """
    ends = [0, *sentence_ends(text)]
    if ends[-1] < len(text):
        ends.append(len(text))
    pieces: list[str] = []
    last = 0
    for depth, needle in needles:
        end = ends[int((len(ends) - 1) * (depth / 100))]
        pieces += [text[last:end].strip(), needle]
        last = end
    return " ".join([*pieces, text[last:].strip()])
