"""The files that RULER's questions and documents come from: SQuAD's and HotpotQA's."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from longseal.errors import LongsealError
from longseal.tasks.jsonl import read_text

_Parsed = TypeVar("_Parsed")
Kind = Literal["squad", "hotpotqa"]


@dataclass(frozen=True)
class Item:
    """A question.

    Attributes:
        gold: documents (by number) that must be there.
        near: documents of the same subject, the first to distract.
        group: questions of one group have their documents in common.
    """

    question: str
    answers: tuple[str, ...]
    gold: tuple[int, ...]
    near: tuple[int, ...]
    group: int


@dataclass(frozen=True)
class QaFile:
    """Questions and all documents, each once, sorted."""

    path: Path
    kind: Kind
    items: tuple[Item, ...]
    documents: tuple[str, ...]


class _Answer(BaseModel):
    text: str


class _Qa(BaseModel):
    question: str
    answers: list[_Answer]
    is_impossible: bool = False


class _Paragraph(BaseModel):
    context: str
    qas: list[_Qa]


class _Article(BaseModel):
    paragraphs: list[_Paragraph]


class _Hotpot(BaseModel):
    question: str
    answer: str
    context: list[tuple[str, list[str]]]


@cache
def read_qa(path: Path) -> QaFile | None:
    """The questions of a file, or None where it is neither SQuAD's nor HotpotQA's.

    Raises:
        LongsealError: it cannot be read, or is such a file but broken.
    """
    try:
        data = json.loads(read_text(path))
    except ValueError:
        return None
    if isinstance(data, dict) and isinstance(data.get("data"), list):
        return _checked(path, "squad", _squad, list[_Article], data["data"])
    first = data[0] if isinstance(data, list) and data else None
    if isinstance(first, dict) and {"supporting_facts", "context"} <= first.keys():
        return _checked(path, "hotpotqa", _hotpotqa, list[_Hotpot], data)
    return None


def _checked(
    path: Path,
    kind: Kind,
    read: Callable[[_Parsed], tuple[list[Item], Sequence[str]]],
    shape: type[_Parsed],
    data: Any,
) -> QaFile:
    try:
        items, documents = read(TypeAdapter(shape).validate_python(data))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise LongsealError(
            f"{path} looks like a file of {kind}, but {place} is not: {first['msg']}"
        ) from error
    if len({item.group for item in items}) < 2:
        raise LongsealError(
            f"{path} has questions on fewer than two texts: it takes one to test on, one to tune on"
        )
    return QaFile(path, kind, tuple(items), tuple(documents))


def _squad(articles: list[_Article]) -> tuple[list[Item], Sequence[str]]:
    documents = sorted({p.context for article in articles for p in article.paragraphs})
    number = {document: i for i, document in enumerate(documents)}
    items = []
    for article in articles:
        mine = dict.fromkeys(number[p.context] for p in article.paragraphs)
        for paragraph in article.paragraphs:
            gold = number[paragraph.context]
            near = tuple(i for i in mine if i != gold)
            for qa in paragraph.qas:
                answers = tuple(dict.fromkeys(a.text for a in qa.answers if a.text.strip()))
                if answers and not qa.is_impossible:
                    items.append(Item(qa.question, answers, (gold,), near, gold))
    return items, documents


def _hotpotqa(rows: list[_Hotpot]) -> tuple[list[Item], Sequence[str]]:
    texts = [[f"{title}\n{''.join(lines)}" for title, lines in row.context] for row in rows]
    documents = sorted({text for row in texts for text in row})
    number = {document: i for i, document in enumerate(documents)}
    items = [
        Item(row.question, (row.answer,), tuple(dict.fromkeys(number[t] for t in mine)), (), place)
        for place, (row, mine) in enumerate(zip(rows, texts, strict=True))
        if row.answer.strip()
    ]
    return items, documents
