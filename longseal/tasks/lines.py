"""Line retrieval in LongEval's format (DachengLi1/LongChat, longeval/, at 4b5faa5)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from random import Random

from wonderwords import RandomWord

from longseal.errors import LongsealError
from longseal.tasks.sample import Question, Sample

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


class Lines:
    """Find the number that stands on the line with a given key.

    Keys are adjective-noun pairs without repeats (LongEval's own generator runs out after 912
    lines; there are millions of pairs), values are drawn from 1 to 50,000, without repeats as long
    as there are enough.
    """

    name = "lines"
    max_new_tokens = 100  # LongEval's own budget
    metric = "last"
    unit = "lines"

    def sample(self, size: int, questions: int, rng: Random) -> Sample:
        """Make `size` lines and ask for `questions` of them (fewer where there are fewer lines)."""
        adjectives, nouns = _words()
        pairs = rng.sample(range(len(adjectives) * len(nouns)), size)
        keys = [f"{adjectives[p // len(nouns)]}-{nouns[p % len(nouns)]}" for p in pairs]
        if size <= _MAX_VALUE:
            values = rng.sample(range(1, _MAX_VALUE + 1), size)
        else:
            values = [rng.randint(1, _MAX_VALUE) for _ in range(size)]
        lines = (
            f"line {key}: REGISTER_CONTENT is <{value}>\n"
            for key, value in zip(keys, values, strict=True)
        )
        asked = rng.sample(range(size), min(questions, size))
        return Sample(
            context=_HEADER + "".join(lines),
            questions=tuple(_question(keys[i], str(values[i])) for i in asked),
        )

    def score(self, prediction: str, expected: str) -> Mapping[str, bool]:
        """Score by LongEval's rule, the last number (`last`), and by two kinder ones beside it.

        `first`: the first number is right. `contains`: the right number stands somewhere.
        """
        numbers = [int(number) for number in _NUMBER.findall(prediction)] or [-1]
        value = int(expected)
        return {
            "last": numbers[-1] == value,
            "first": numbers[0] == value,
            "contains": value in numbers,
        }


def read_longeval(path: Path) -> list[Sample]:
    """Read a test file of LongEval (`N_lines.jsonl`): one sample with one question a row.

    Raises:
        LongsealError: the file is missing or a row is not LongEval's.
    """
    try:
        rows = [json.loads(row) for row in path.read_text("utf-8").splitlines() if row.strip()]
        return [_from_row(row) for row in rows]
    except OSError as error:
        raise LongsealError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise LongsealError(f"{path} is not a LongEval lines file: {error}") from error


def _from_row(row: Mapping[str, object]) -> Sample:
    prompt, key_and_position = str(row["prompt"]), row["random_idx"]
    if not isinstance(key_and_position, list):
        raise TypeError("random_idx is no list")
    context, tail, question = prompt.rpartition(_TAIL)
    answer = _question(str(key_and_position[0]), str(row["expected_number"]))
    return Sample(context, (Question(tail + question, answer.answer, answer.expected),))


def _question(key: str, value: str) -> Question:
    return Question(
        text=f"{_TAIL}{key}? I need the number. ",
        answer=f"The <REGISTER_CONTENT> in line {key} is <{value}>.",
        expected=value,
    )


@cache
def _words() -> tuple[list[str], list[str]]:
    """Adjectives and nouns of wonderwords, those with a space left out, sorted."""
    words = RandomWord()
    kinds = ("adjectives", "nouns")
    adjectives, nouns = (
        sorted({w for w in words.filter(include_parts_of_speech=[kind]) if " " not in w})
        for kind in kinds
    )
    return adjectives, nouns
