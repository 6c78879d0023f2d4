"""The user's examples: a context, a question and its answer, or a chat."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longseal.errors import LongsealError
from longseal.tasks.jsonl import jsonl, parse
from longseal.tasks.own.tokens import tokens

_GLUE = "\n\n"


@dataclass(frozen=True)
class Example:
    """One example.

    Attributes:
        question: what follows the context in the user's turn, the line breaks before it included;
            the whole turn where the context stands in an earlier one.
        before: turns (role, text) before the user's last one.
        turn: which of them is the context; None where it is in the last one.
    """

    context: str
    question: str
    answer: str
    before: tuple[tuple[str, str], ...] = ()
    turn: int | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        """All its texts."""
        others = [text for i, (_, text) in enumerate(self.before) if i != self.turn]
        return (*others, self.context, self.question, self.answer)


def read_examples(path: Path) -> list[Example]:
    """Read examples from JSON lines: `context`, `question` and `answer`, or `messages`.

    Raises:
        LongsealError: a line is none; its number is said.
    """
    return [parse(path, number, row, read_example) for number, row in jsonl(path)]


def read_example(row: Mapping[str, Any]) -> Example:
    """An example from a row.

    Raises:
        KeyError, TypeError, ValueError: a field is missing, or is not what it should be.
    """
    if "messages" in row:
        return _chat(row["messages"])
    context, question, answer = (_text(row, name) for name in ("context", "question", "answer"))
    parted = context[-1:].isspace() or question[:1].isspace()
    return Example(context, question if parted else _GLUE + question, answer)


def _text(row: Mapping[str, Any], name: str) -> str:
    text = row[name]
    if not isinstance(text, str):
        raise TypeError(f"{name} is {type(text).__name__}, and should be a text")
    if not text.strip():
        raise ValueError(f"{name} is empty")
    return text


def _chat(messages: object) -> Example:
    if not isinstance(messages, list) or not all(isinstance(turn, dict) for turn in messages):
        raise TypeError("messages should be a list of objects with role and content")
    turns = [(_text(turn, "role"), _text(turn, "content")) for turn in messages]
    if [role for role, _ in turns[-2:]] != ["user", "assistant"]:
        raise ValueError("the last two messages should be the user's question and its answer")
    *before, (_, asked), (_, answer) = turns
    # Where the answer is found tells the context from the question.
    ways = [Example(*_cut(asked, mark), answer, tuple(before)) for mark in (_GLUE, "\n")]
    ways += [
        Example(text, asked, answer, tuple(before), i)
        for i, (role, text) in enumerate(before)
        if role != "assistant"
    ]
    return max(ways, key=lambda each: _found(answer, each.context))


def _cut(turn: str, mark: str) -> tuple[str, str]:
    body = turn.rstrip()
    at = body.rfind(mark)
    return (turn[:at], turn[at:]) if at > 0 else ("", turn)


def _found(answer: str, context: str) -> float:
    """How much of an answer stands in a context."""
    if answer.strip() in context:
        return 2.0
    wanted = {token.text for token in tokens(answer) if not token.literal}
    return len(wanted & {token.text for token in tokens(context)}) / max(1, len(wanted))


def answer_tokens(answers: Iterable[str]) -> int:
    """Tokens that an answer may take: twice the longest, at two bytes a token."""
    return 32 + max(len(answer.encode()) for answer in answers)


def no_answer(example: int, examples: Sequence[Example], why: str) -> LongsealError:
    """An error about an example whose answer cannot be made anew."""
    answer = " ".join(examples[example].answer.split())
    short = answer if len(answer) <= 60 else f"{answer[:57]}..."
    return LongsealError(
        f"example {example + 1}: its answer {short!r} {why}. An answer has to repeat, word for "
        "word, something of the context that the question does not say already"
    )
