"""Task files: a header with the format, then samples, a JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, StringConstraints, ValidationError

from longseal.errors import LongsealError
from longseal.files import new_file
from longseal.tasks.haystack import Haystack
from longseal.tasks.jsonl import jsonl, parse
from longseal.tasks.own.examples import Example, answer_tokens, read_example
from longseal.tasks.own.format import Format
from longseal.tasks.own.leaves import Model
from longseal.tasks.own.task import OwnFile, OwnTask
from longseal.tasks.sample import Question, Sample, Task

_MARK = "longseal_task"
Said = Annotated[str, StringConstraints(min_length=1, pattern=r"\S")]

_Line = TypeVar("_Line", bound=Model)


class Header(Model):
    """The first line.

    Attributes:
        longseal_task: the version of the file's form.
        format: what samples are drawn from; without it the file's samples are all there are.
        writer: the language model that wrote some of their content.
        made: how the samples were made, for whoever reads the file.
    """

    longseal_task: Literal[1] = 1
    name: Said
    format: Format | None = None
    writer: str | None = None
    made: Mapping[str, str | int] = Field(default_factory=dict)


class Message(Model):
    """A turn before the last one."""

    role: Said
    content: str


class Row(Model):
    """A sample: the user's turn is `context` + `question`, as they are."""

    context: str
    question: Said
    answer: Said
    expected: Annotated[tuple[Said, ...], Field(min_length=1)]
    evidence: str = ""
    before: tuple[Message, ...] = ()

    def sample(self) -> Sample:
        """As tasks have it."""
        question = Question(self.question, self.answer, self.expected, evidence=self.evidence)
        before = tuple((turn.role, turn.content) for turn in self.before)
        return Sample(self.context, (question,), before)


def write_task_file(path: Path, header: Header, samples: Sequence[Sample]) -> None:
    """Write a task file, whole or not at all; each question becomes a row."""
    rows = [
        Row(
            context=sample.context,
            question=question.text,
            answer=question.answer,
            expected=question.expected,
            evidence=question.evidence,
            before=tuple(Message(role=role, content=text) for role, text in sample.before),
        )
        for sample in samples
        for question in sample.questions
    ]
    with new_file(path) as partial, partial.open("w", encoding="utf-8", newline="\n") as file:
        for line in (header, *rows):
            file.write(line.model_dump_json(exclude_defaults=line is not header) + "\n")


def read_task_file(path: Path, haystack: Haystack | None = None) -> Task:
    """A task from a file.

    A file that `longseal generate` made without a writer draws samples of any length anew; any
    other file (rows of `context`, `question` and `answer`, or of `messages`) is asked as it is.

    Args:
        haystack: prose to draw from, in the place of the built-in one.

    Raises:
        LongsealError: the file is no task file; the line is said.
    """
    (number, first), *others = jsonl(path)
    if _MARK not in first:
        rows = [(number, first), *others]
        examples = [parse(path, at, row, read_example) for at, row in rows]
        return _recorded(path.stem, [_plain(example) for example in examples])
    header = parse(path, number, first, lambda row: _valid(Header, row))
    samples = [parse(path, at, row, lambda r: _valid(Row, r)).sample() for at, row in others]
    if header.format is not None:
        return OwnTask(path.stem, header.format, haystack)
    if not samples:
        raise LongsealError(f"{path} has neither a format nor samples: make it again")
    return _recorded(path.stem, samples)


def _recorded(name: str, samples: Sequence[Sample]) -> OwnFile:
    answers = (sample.questions[0].answer for sample in samples)
    return OwnFile(name, samples, answer_tokens(answers))


def _plain(example: Example) -> Sample:
    answer = example.answer.strip()
    question = Question(example.question, example.answer, (answer,))
    return Sample("" if example.turn is not None else example.context, (question,), example.before)


def _valid(model: type[_Line], row: Mapping[str, Any]) -> _Line:
    try:
        return model.model_validate_json(json.dumps(row), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "it"
        raise ValueError(f"{where}: {first['msg'].removeprefix('Value error, ')}") from error
