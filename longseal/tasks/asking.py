"""Ask a model the questions of a sample, and score what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from longseal.models.generation import generate
from longseal.models.load import LanguageModel
from longseal.tasks.prompt import EncodedSample, Prompts
from longseal.tasks.sample import Task


@dataclass(frozen=True)
class Answer:
    """A scored prediction.

    Attributes:
        question: which question of the sample.
        tokens: length of its prompt, template included.
        scores: each way of scoring.
    """

    question: int
    tokens: int
    expected: str
    prediction: str
    scores: Mapping[str, bool]


def ask(model: LanguageModel, task: Task, prompts: Prompts, encoded: EncodedSample) -> list[Answer]:
    """Answer every question greedily, nothing of the answer given, and score it."""
    predictions = generate(
        model,
        encoded.context,
        encoded.questions,
        max_new_tokens=task.max_new_tokens,
        stop_tokens=prompts.stop_tokens,
    )
    answers = []
    for index, tokens in enumerate(predictions):
        prediction = prompts.decode(tokens)
        expected = encoded.source.questions[index].expected
        answers.append(
            Answer(
                question=index,
                tokens=len(encoded.context) + len(encoded.questions[index]),
                expected=expected,
                prediction=prediction,
                scores=task.score(prediction, expected),
            )
        )
    return answers
