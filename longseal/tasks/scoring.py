"""Scores of predictions that any engine made, read from a file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from longseal.errors import LongsealError
from longseal.intervals import mean_interval
from longseal.tasks.jsonl import jsonl, parse, read_text
from longseal.tasks.sample import Question, Task

#: A case in LongEval's response files; what is predicted may go over several lines.
_RESPONSE = re.compile(
    r"\s*Label: (?P<label>-?\d+), Predict: (?P<said>.*?), "
    r"Parsed: -?\d+, prompt length: \d+[^\S\n]*(?:\n|$)",
    re.DOTALL,
)
_END = re.compile(r"\s*(?:Accuracy: [\d.]+\s*)?")


@dataclass(frozen=True)
class Scored:
    """A scored prediction.

    Attributes:
        line: where it stands in its file, from 1.
        group: what it is counted under, such as a range of lengths; may be empty.
        length: tokens, as asked for if the file says so, of prompt and answer together otherwise.
        depth: where the answer stands, 0 the context's start and 1 its end.
        scores: each way of scoring, 0 (wrong) to 1 (right).
    """

    line: int
    group: str
    length: int | None
    depth: float | None
    answers: tuple[str, ...]
    prediction: str
    scores: Mapping[str, float]


@dataclass(frozen=True)
class Mean:
    """A mean score and its 95% interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Row:
    """The mean scores of what has group, length and, where it was split by it, depth in common."""

    group: str
    length: int | None
    depth: float | None
    total: int
    scores: Mapping[str, Mean]


def score_file(path: Path, task: Task) -> list[Scored]:
    """Score each prediction of a file.

    Args:
        path: JSON lines with `prediction`, `answers` (the references) and what else of
            `longseal tasks sample --json` is known; or a response file as LongEval publishes them.

    Raises:
        LongsealError: the file is neither, or a line of it lacks something; the line is said.
    """
    published = read_text(path).lstrip().startswith("Label: ")
    rows = _responses(path) if published else jsonl(path)
    return [parse(path, number, row, partial(_scored, number, task)) for number, row in rows]


def summary(cases: Sequence[Scored], *, by_depth: bool = False) -> list[Row]:
    """Mean scores by group and length, in that order.

    Args:
        by_depth: by depth as well, to the nearest tenth.
    """
    rows: dict[tuple[str, int | None, float | None], list[Scored]] = {}
    for case in cases:
        depth = round(case.depth, 1) if by_depth and case.depth is not None else None
        rows.setdefault((case.group, case.length, depth), []).append(case)
    return [
        Row(*key, total=len(rows[key]), scores=_means(rows[key]))
        for key in sorted(rows, key=_place)
    ]


def _means(cases: Sequence[Scored]) -> dict[str, Mean]:
    names = dict.fromkeys(name for case in cases for name in case.scores)
    values = {name: [c.scores[name] for c in cases if name in c.scores] for name in names}
    return {name: Mean(sum(v) / len(v), *mean_interval(v)) for name, v in values.items()}


def _place(key: tuple[str, int | None, float | None]) -> tuple[str, int, float]:
    group, length, depth = key
    return group, -1 if length is None else length, -1.0 if depth is None else depth


def _scored(number: int, task: Task, row: Mapping[str, Any]) -> Scored:
    prediction, answers = row["prediction"], row["answers"]
    if not isinstance(prediction, str):
        raise TypeError("prediction is not a text")
    if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
        raise TypeError("answers is not a list of texts")
    if not answers:
        raise ValueError("answers is empty: there is nothing to score the prediction against")
    if not all(map(str.strip, answers)):
        raise ValueError("one of the answers is blank: it would stand in any prediction")
    fields = row.get("fields") or {}
    if not isinstance(fields, Mapping):
        raise TypeError("fields is not an object")
    question = Question(
        "", answers[0], tuple(answers), prefix=row.get("prefix") or "", fields=fields
    )
    return Scored(
        line=number,
        group=str(row.get("group") or ""),
        length=_number(row, int, "wanted_length", "length"),
        depth=_number(row, (int, float), "wanted_depth", "depth"),
        answers=question.expected,
        prediction=prediction,
        scores=task.score(prediction, question),
    )


def _number(row: Mapping[str, Any], kind: Any, *names: str) -> Any:
    """The first of these fields that is there, if any."""
    for name in names:
        value = row.get(name)
        if value is not None:
            if isinstance(value, bool) or not isinstance(value, kind):
                raise TypeError(f"{name} is not a number: {value!r}")
            return value
    return None


def _responses(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The cases of one of LongEval's response files, each with its first line's number."""
    text, place = read_text(path), 0
    while found := _RESPONSE.match(text, place):
        start = text.count("\n", 0, found.start("label")) + 1
        yield start, {"prediction": found["said"], "answers": [found["label"]]}
        place = found.end()
    if not _END.fullmatch(text, place):
        line = text.count("\n", 0, place) + 1
        raise LongsealError(
            f"{path}, line {line}: not a case of LongEval's (Label: .., Predict: .., Parsed: .., "
            "prompt length: ..)"
        )
