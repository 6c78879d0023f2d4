"""What a task is: how a sample is made and how an answer is scored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Protocol


@dataclass(frozen=True)
class Question:
    """One question about a context.

    Attributes:
        text: what follows the context in the user's turn.
        answer: the full answer that the model is tuned on.
        expected: the value that a prediction is scored against.
    """

    text: str
    answer: str
    expected: str


@dataclass(frozen=True)
class Sample:
    """A context and the questions that share it; the user's turn is `context + question.text`."""

    context: str
    questions: tuple[Question, ...]


class Task(Protocol):
    """A retrieval format.

    Attributes:
        name: what `--task` takes.
        max_new_tokens: tokens the model may answer with.
        metric: the score, among those that `score` returns, by which the task is judged.
        unit: what `size` counts, in the plural.
    """

    name: str
    max_new_tokens: int
    metric: str
    unit: str

    def sample(self, size: int, questions: int, rng: Random) -> Sample:
        """Make a context of `size` units and `questions` questions about it."""
        ...

    def score(self, prediction: str, expected: str) -> Mapping[str, bool]:
        """Judge a prediction; one truth value for each way of scoring."""
        ...
