"""Line retrieval in LongEval's format (DachengLi1/LongChat, longeval/, at 4b5faa5)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from longseal.tasks.jsonl import jsonl, parse
from longseal.tasks.places import asked_places
from longseal.tasks.sample import Family, Material, Question, Recorded, Sample, Task, Wanted
from longseal.tasks.words import dictionary

_HEADER = (
    "Below is a record of lines I want you to remember. Each line begins with 'line <line index>' "
    "and contains a '<REGISTER_CONTENT>' at the end of the line as a numerical value. "
    "For each line index, memorize its corresponding <REGISTER_CONTENT>. At the end of the record, "
    "I will ask you to retrieve the corresponding <REGISTER_CONTENT> of a certain line index. "
    "Now the record start:\n\n"
)
_TAIL = "\nNow the record is over. Tell me what is the <REGISTER_CONTENT> in line "
_MAX_VALUE = 50_000
_NUMBER = re.compile(r"\d+")


class Lines(Task):
    """Find the number that stands on the line with a given key.

    Keys are adjective-noun pairs without repeats (LongEval's own generator runs out after 912
    lines; there are millions of pairs), values are drawn from 1 to 50,000, without repeats as long
    as there are enough.
    """

    name = "lines"
    about = "the number on the line with a given key, among thousands of such lines"
    source = "LongEval (DachengLi1/LongChat at 4b5faa5)"
    max_new_tokens = 100  # LongEval's own budget
    metric = "last"
    unit = "lines"

    def sample(self, wanted: Wanted) -> Sample:
        """Make the lines and ask for some of them (fewer where there are fewer lines).

        With a depth, the first question is about the line that stands there.
        """
        size, random = wanted.size, wanted.random()
        adjectives, nouns = _words()
        pairs = random.sample(range(len(adjectives) * len(nouns)), size)
        keys = [f"{adjectives[p // len(nouns)]}-{nouns[p % len(nouns)]}" for p in pairs]
        if size <= _MAX_VALUE:
            values = random.sample(range(1, _MAX_VALUE + 1), size)
        else:
            values = [random.randint(1, _MAX_VALUE) for _ in range(size)]
        lines = [
            f"line {key}: REGISTER_CONTENT is <{value}>\n"
            for key, value in zip(keys, values, strict=True)
        ]
        drawn = random.sample(range(size), min(wanted.questions, size))
        asked = asked_places(drawn, size, wanted.depth)
        return Sample(
            context=_HEADER + "".join(lines),
            questions=tuple(_question(keys[i], str(values[i])) for i in asked),
        )

    def score(self, prediction: str, question: Question) -> Mapping[str, float]:
        """Score by LongEval's rule, the last number (`last`), and by two kinder ones beside it.

        `first`: the first number is right. `contains`: the right number stands somewhere.
        """
        numbers = [int(number) for number in _NUMBER.findall(prediction)] or [-1]
        value = int(question.expected[0])
        return {
            "last": float(numbers[-1] == value),
            "first": float(numbers[0] == value),
            "contains": float(value in numbers),
        }


class LinesFile(Recorded):
    """LongEval's own test files, as published."""

    about = Lines.about
    source = Lines.source
    max_new_tokens = Lines.max_new_tokens
    metric = Lines.metric

    def score(self, prediction: str, question: Question) -> Mapping[str, float]:
        """As lines are scored."""
        return Lines().score(prediction, question)


def _make(variant: str, material: Material) -> Task:
    if not material.data:
        return Lines()
    return LinesFile("lines", [sample for path in material.data for sample in read_longeval(path)])


FAMILY = Family(
    "lines",
    Lines.about,
    _make,
    source=Lines.source,
    takes="--data: LongEval's test files (N_lines.jsonl), asked as they are",
)


def read_longeval(path: Path) -> list[Sample]:
    """Read a test file of LongEval (`N_lines.jsonl`): one sample with one question a row.

    Raises:
        LongsealError: the file is missing or a row is not LongEval's; the line is said.
    """
    return [parse(path, number, row, _from_row) for number, row in jsonl(path)]


def _from_row(row: Mapping[str, object]) -> Sample:
    prompt, key_and_position = str(row["prompt"]), row["random_idx"]
    if not isinstance(key_and_position, list):
        raise TypeError("random_idx is no list")
    if not re.fullmatch(r"\d{1,18}", str(row["expected_number"])):
        raise ValueError(f"expected_number is no number: {row['expected_number']!r}")
    context, tail, question = prompt.rpartition(_TAIL)
    if not tail:
        raise ValueError(f"prompt does not ask as LongEval does: {_TAIL.strip()!r} is not there")
    answer = _question(str(key_and_position[0]), str(row["expected_number"]))
    return Sample(context, (replace(answer, text=tail + question),))


def _question(key: str, value: str) -> Question:
    return Question(
        text=f"{_TAIL}{key}? I need the number. ",
        answer=f"The <REGISTER_CONTENT> in line {key} is <{value}>.",
        expected=(value,),
        evidence=f"line {key}: REGISTER_CONTENT is <{value}>\n",
    )


@cache
def _words() -> tuple[list[str], list[str]]:
    """Adjectives and nouns, those with a space left out, sorted."""
    adjectives, nouns = (
        [word for word in dictionary(kind) if " " not in word] for kind in ("adjectives", "nouns")
    )
    return adjectives, nouns
