"""Items of LongBench and LV-Eval, read from JSON lines as published."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field, ValidationError

from longseal.errors import LongsealError
from longseal.tasks.jsonl import jsonl, parse
from longseal.tasks.qa.formats import Format, find
from longseal.tasks.sample import Question, Sample


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("it is blank")
    return text


_Asked = Annotated[str, AfterValidator(_not_blank)]


class _Row(BaseModel):
    """What is used of a published row."""

    input: _Asked
    context: _Asked
    answers: Annotated[list[str], Field(min_length=1)]
    dataset: str | None = None
    length: int | None = None
    answer_keywords: str | None = None


@dataclass(frozen=True)
class Item:
    """A row with its dataset.

    Attributes:
        dataset: the full name, suffix included.
        bucket: LongBench-E's range of lengths, or empty.
    """

    dataset: str
    format: Format
    context: str
    question: Question
    bucket: str


def read(paths: Iterable[Path], named: str = "") -> list[Item]:
    """The items of all files.

    Args:
        named: the dataset that the user named, for rows that do not say theirs.

    Raises:
        LongsealError: a file cannot be read, or a row is not what it should be; its line is said.
    """
    return [
        parse(path, number, row, lambda fields: _item(fields, named))
        for path in paths
        for number, row in jsonl(path)
    ]


def samples(items: Iterable[Item]) -> list[Sample]:
    """One sample for each context of a dataset, with all questions that are asked about it.

    Their order is that in which the contexts first come. The group is LongBench-E's range of
    lengths, with the dataset before it where there are several.
    """
    by_context: dict[tuple[str, str, str], list[Item]] = {}
    for item in items:
        by_context.setdefault((item.dataset, item.bucket, item.context), []).append(item)
    several = len({dataset for dataset, _, _ in by_context}) > 1
    return [
        Sample(
            context=context,
            questions=tuple(item.question for item in asked),
            chat=asked[0].format.chat,
            group=" ".join(filter(None, (dataset if several else "", bucket))),
        )
        for (dataset, bucket, context), asked in by_context.items()
    ]


def _item(fields: Mapping[str, Any], named: str) -> Item:
    row = _checked(fields)
    if not row.answers[0].strip():
        raise ValueError("answers: the first is blank")
    dataset = _dataset(row.dataset or "", named)
    format_ = find(dataset)
    context, text = format_.fill(row.context, row.input)
    return Item(
        dataset=dataset,
        format=format_,
        context=context,
        question=Question(
            text=text,
            answer=row.answers[0],
            expected=tuple(
                row.answers[:1] if format_.first_answer else filter(str.strip, row.answers)
            ),
            fields={
                "dataset": dataset,
                "answer_keywords": row.answer_keywords,
                **format_.model_dump(include={"language", "max_new_tokens", "first_line", "gate"}),
            },
        ),
        bucket=_bucket(row.length) if dataset.endswith("_e") else "",
    )


def _checked(fields: Mapping[str, Any]) -> _Row:
    try:
        return _Row.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        where, *rest = first["loc"]
        if first["type"] == "missing":
            raise KeyError(where) from error
        place = f", number {rest[0] + 1}" if rest and isinstance(rest[0], int) else ""
        raise ValueError(f"{where}{place}: {first['msg'].removeprefix('Value error, ')}") from error


def _dataset(said: str, named: str) -> str:
    """The dataset of a row: what it says or what the user named, the fuller name of the two."""
    if not said and not named:
        raise LongsealError(
            "no field 'dataset' says which questions these are: name them, as in --task qa/hotpotqa"
        )
    short, full = sorted((said, named), key=len)
    if short and (find(short) is not find(full) or not full.startswith(short)):
        raise LongsealError(
            f"the row is of {said}, not of {named}: --task qa takes every row as what it says"
        )
    return full


def _bucket(length: int | None) -> str:
    """LongBench-E's range of lengths, in words."""
    if length is None:
        raise KeyError("length")
    if length < 4000:
        return "0-4k"
    return "4-8k" if length < 8000 else "8k+"
