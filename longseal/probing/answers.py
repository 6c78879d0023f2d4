"""What the answers to one sample's questions are worth, whatever is attached to the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from longseal.models.load import LanguageModel
from longseal.tasks import Task
from longseal.tasks.asking import Generate, ask, generate_here
from longseal.tasks.fitting import budget
from longseal.tasks.prompt import EncodedSample, Prompts


@dataclass(frozen=True)
class Answers:
    """How well a sample's questions are answered.

    Attributes:
        log_probabilities: of each right answer, its end-of-turn token included, in nats.
        scores: of each answer that was generated freely, 0 to 1; empty where none was.
    """

    log_probabilities: tuple[float, ...]
    scores: tuple[float, ...] = ()


@dataclass(frozen=True)
class Asking:
    """What asks and judges."""

    model: LanguageModel
    task: Task
    prompts: Prompts

    def scores(
        self, encoded: EncodedSample, times: int = 1, run: Generate | None = None
    ) -> list[tuple[float, ...]]:
        """Answer every question greedily; the task's own score of each.

        Args:
            times: how often the sample is asked, each time of another variant.
            run: what answers; the model as it stands where it is None.
        """
        samples = [encoded] * times
        answers = ask(self.task, self.prompts, samples, run or generate_here(self.model))
        metric = self.task.metric
        found = {(each.sample, each.question): float(each.scores[metric]) for each in answers}
        questions = range(len(encoded.questions))
        return [tuple(found[time, question] for question in questions) for time in range(times)]

    def tokens(self, encoded: EncodedSample) -> list[int]:
        """What the model as it stands answers to the sample's only question, greedily."""
        (question,) = encoded.source.questions
        budgets = [[budget(self.task, self.prompts, question)]]
        run = generate_here(self.model)
        (found,) = run([encoded], budgets, self.prompts.stop_tokens)
        return list(found.tokens)


def by_answer(
    logits: Tensor, labels: Tensor, answers: Sequence[Sequence[int]]
) -> list[tuple[float, ...]]:
    """Log-probability of each answer, for each of a batch.

    Args:
        logits: `(batch, n_answer_tokens, vocabulary)`.
        labels: `(n_answer_tokens,)`: the tokens of all answers, one after another.
    """
    sizes = [len(answer) for answer in answers]
    made = []
    for row in logits:  # one by one: in float32 a row may take as much as all else
        found = -functional.cross_entropy(row.float(), labels, reduction="none")
        made.append(tuple(torch.stack([p.sum() for p in found.split(sizes)]).tolist()))
    return made
