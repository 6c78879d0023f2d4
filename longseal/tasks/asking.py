"""Ask a model the questions of a sample, and score what it answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from longseal.models.generation import generate
from longseal.models.load import LanguageModel
from longseal.tasks.prompt import EncodedSample, Prompts
from longseal.tasks.sample import Task


@dataclass(frozen=True)
class Answer:
    """A scored prediction.

    Attributes:
        sample, question: which sample of those asked, and which question of it.
        tokens: length of its prompt, template included.
        scores: each way of scoring.
    """

    sample: int
    question: int
    tokens: int
    expected: str
    prediction: str
    scores: Mapping[str, bool]


def ask(
    model: LanguageModel, task: Task, prompts: Prompts, samples: Sequence[EncodedSample]
) -> Iterator[Answer]:
    """Answer every question greedily, nothing of the answer given; score each when it is whole."""
    for done in generate(
        model, samples, max_new_tokens=task.max_new_tokens, stop_tokens=prompts.stop_tokens
    ):
        encoded = samples[done.sample]
        prediction = prompts.decode(done.tokens)
        expected = encoded.source.questions[done.question].expected
        yield Answer(
            sample=done.sample,
            question=done.question,
            tokens=len(encoded.context) + len(encoded.questions[done.question]),
            expected=expected,
            prediction=prediction,
            scores=task.score(prediction, expected),
        )
