"""Retrieval from code: the function of a long Python file that does what is described."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

from longseal.tasks.places import arranged
from longseal.tasks.sample import Family, Material, Question, Sample, Task, Wanted
from longseal.tasks.words import dictionary

_HEADER = (
    "Below is a Python file. Afterwards I will ask you which function does what.\n\n```python\n"
)
_FOOTER = "```\n\n"
_NOTES = (
    "Used by the {} report.",
    "Part of the {} ledger.",
    "Kept for the {} team.",
    "See the {} manual.",
)
_IDENTIFIER = re.compile(r"[a-z]{3,9}")


class Code(Task):
    """Name the function whose body does what is described, in a file of generated functions.

    Each function has two numbers and a label that no other has together, and the arguments that
    it is asked with are such that no other function returns the same: the answer is one alone.

    A function takes some 40 tokens. So that every length can be met, size counts tenths of a
    function: what is over stands as so many lines of comment.
    """

    name = "code"
    about = "the name of the function that does what is described, in a long Python file"
    unit = "tenths of a function"
    max_new_tokens = 50
    metric = "contains"
    smallest = 20

    def sample(self, wanted: Wanted) -> Sample:
        """Make the file and ask for some of its functions (fewer where there are fewer).

        With a depth, the first question is about the function that stands there.
        """
        count, tenths = divmod(wanted.size, 10)
        functions = _functions(count, wanted.random("functions"))
        standing = [functions[i].source for i in arranged(count, wanted)]
        random = wanted.random("comments")
        for _ in range(tenths):
            place = random.randrange(count)
            standing[place] = f"# see {random.choice(_words('nouns'))}\n{standing[place]}"
        return Sample(
            context=_HEADER + "\n\n".join(standing) + _FOOTER,
            questions=tuple(function.question for function in functions[: wanted.questions]),
        )

    def score(self, prediction: str, question: Question) -> Mapping[str, float]:
        """Score by the name's standing somewhere as a word (`contains`), and by `exact`.

        `exact`: nothing else stands there but quotes, brackets, white space or a full stop.
        """
        name = question.expected[0]
        return {
            "contains": float(re.search(rf"\b{re.escape(name)}\b", prediction) is not None),
            "exact": float(prediction.strip(" \t\r\n\"'`.()") == name),
        }


@dataclass(frozen=True)
class _Kind:
    """Functions of a kind; `{a}`, `{b}` and `{label}` are filled in.

    A result tells a, b or the label of the function that gave it, and for arguments of one kind
    the other kinds fail or return something of another type or size.

    Attributes:
        does: what goes on after "Which function".
        arguments: what it is asked with, from a number of 1000 to 9999, a word and the label.
        result: what it returns to them.
    """

    parameters: str
    body: tuple[str, ...]
    does: str
    arguments: Callable[[int, str, str], tuple[Any, ...]]
    result: Callable[[tuple[Any, ...], int, int, str], Any]


_KINDS = (
    _Kind(
        "number",
        ("scaled = number * {a}", "return scaled + {b}"),
        "multiplies its number by {a} and then adds {b}",
        lambda number, word, label: (number,),
        lambda given, a, b, label: given[0] * a + b,
    ),
    _Kind(
        "first, second",
        ("return first * {a} - second * {b}",),
        "takes {a} times its first number and subtracts {b} times its second",
        lambda number, word, label: (number, 1),
        lambda given, a, b, label: given[0] * a - given[1] * b,
    ),
    _Kind(
        "numbers",
        ("longer = [*numbers, {a}]", "return [{b}, *longer]"),
        "puts {b} before the numbers of its list and {a} behind them",
        lambda number, word, label: ([number, 7],),
        lambda given, a, b, label: [b, *given[0], a],
    ),
    _Kind(
        "text",
        ('return "{label} " + text.upper()',),
        'writes its text in capital letters and puts "{label}" before it',
        lambda number, word, label: (word,),
        lambda given, a, b, label: f"{label} {given[0].upper()}",
    ),
    _Kind(
        "text",
        ('if text == "{label}":', "    return {b}", "return {a}"),
        'returns {b} for the text "{label}" and {a} for any other',
        lambda number, word, label: (label,),
        lambda given, a, b, label: b,
    ),
    _Kind(
        "number",
        ("if number > {b}:", '    return "{label}"', 'return "less"'),
        'returns "{label}" for a number above {b}',
        lambda number, word, label: (number,),
        lambda given, a, b, label: label,
    ),
    _Kind(
        "record",
        ('found = record["{label}"]', "return found * {a} + {b}"),
        'looks "{label}" up in its record, multiplies what it finds by {a} and adds {b}',
        lambda number, word, label: ({label: number},),
        lambda given, a, b, label: given[0][label] * a + b,
    ),
    _Kind(
        "words",
        ('joined = ", ".join(sorted(words))', 'return f"{label}: {{joined}}"'),
        'sorts its words, joins them by commas and puts "{label}" before them',
        lambda number, word, label: ([word, "middle"],),
        lambda given, a, b, label: f"{label}: {', '.join(sorted(given[0]))}",
    ),
)


@dataclass(frozen=True)
class _Function:
    """A function, and the number and the word that it is asked with."""

    kind: _Kind
    name: str
    label: str
    a: int
    b: int
    note: str
    number: int
    word: str

    @property
    def source(self) -> str:
        lines = (f'"""{self.note}"""', *map(self._filled, self.kind.body))
        body = "".join(f"    {line}\n" for line in lines)
        return f"def {self.name}({self.kind.parameters}):\n{body}"

    @property
    def question(self) -> Question:
        given = self.kind.arguments(self.number, self.word, self.label)
        result = self.kind.result(given, self.a, self.b, self.label)
        return Question(
            text=(
                f"Which function in the file above {self._filled(self.kind.does)}? "
                f"Called with {' and '.join(map(repr, given))}, it returns {result!r}. "
                "Answer with the function's name alone."
            ),
            answer=self.name,
            expected=(self.name,),
            evidence=self.source,
        )

    def _filled(self, text: str) -> str:
        return text.format(a=self.a, b=self.b, label=self.label)


def _functions(count: int, random: Random) -> list[_Function]:
    """Functions whose names, labels and pairs of numbers are all different."""
    adjectives, nouns, verbs = (_words(kind) for kind in ("adjectives", "nouns", "verbs"))
    made: list[_Function] = []
    taken: set[object] = set()
    while len(made) < count:
        name = f"{random.choice(verbs)}_{random.choice(nouns)}"
        label = f"{random.choice(adjectives)} {random.choice(nouns)}"
        a, b = random.randint(11, 99), random.randint(101, 999)
        if not taken.isdisjoint((name, label, (a, b))):
            continue
        taken.update((name, label, (a, b)))
        note = random.choice(_NOTES).format(random.choice(nouns))
        number, word = random.randint(1000, 9999), random.choice(nouns)
        made.append(_Function(random.choice(_KINDS), name, label, a, b, note, number, word))
    return made


@cache
def _words(kind: str) -> list[str]:
    """Words that can stand in a name, sorted."""
    return [word for word in dictionary(kind) if _IDENTIFIER.fullmatch(word)]


def _make(variant: str, material: Material) -> Task:
    return Code()


FAMILY = Family(Code.name, Code.about, _make)
