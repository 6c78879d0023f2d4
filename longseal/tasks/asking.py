"""Ask a model the questions of a sample, and score what it answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from longseal.models.generation import Continuation, generate
from longseal.models.load import LanguageModel
from longseal.tasks.fitting import budget
from longseal.tasks.prompt import EncodedSample, Prompts
from longseal.tasks.sample import Task

#: Continues prompts: samples, tokens each of their questions may be answered with, stop tokens.
Generate = Callable[
    [Sequence[EncodedSample], Sequence[Sequence[int]], Sequence[int]], Iterator[Continuation]
]


@dataclass(frozen=True)
class Answer:
    """A scored prediction.

    Attributes:
        sample, question: which sample of those asked, and which question of it.
        thoughts: tokens of thought before the answer.
        seconds: time it took, its share of what was answered together.
        scores: each way of scoring, 0 to 1.
    """

    sample: int
    question: int
    prediction: str
    thoughts: int
    seconds: float
    scores: Mapping[str, float]


def generate_here(model: LanguageModel) -> Generate:
    """Answers of this process."""

    def run(
        samples: Sequence[EncodedSample], budgets: Sequence[Sequence[int]], stop: Sequence[int]
    ) -> Iterator[Continuation]:
        return generate(model, samples, max_new_tokens=budgets, stop_tokens=stop)

    return run


def ask(
    task: Task, prompts: Prompts, samples: Sequence[EncodedSample], run: Generate
) -> Iterator[Answer]:
    """Answer every question greedily, nothing of the answer given but its prefix; score each."""
    budgets = [
        [budget(task, prompts, question) for question in sample.source.questions]
        for sample in samples
    ]
    for done in run(samples, budgets, prompts.stop_tokens):
        question = samples[done.sample].source.questions[done.question]
        prediction, thoughts = prompts.decode(done.tokens)
        yield Answer(
            sample=done.sample,
            question=done.question,
            prediction=prediction,
            thoughts=thoughts,
            seconds=done.seconds,
            scores=task.score(prediction, question),
        )
