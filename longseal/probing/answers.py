"""What the answers to one sample's questions are worth, whatever is attached to the model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from longseal.models.generation import Continuation, generate
from longseal.models.load import LanguageModel
from longseal.tasks import Task
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

    def budgets(self, encoded: EncodedSample) -> tuple[int, ...]:
        """Tokens that each question may be answered with."""
        return tuple(budget(self.task, self.prompts, q) for q in encoded.source.questions)

    def scores(self, encoded: EncodedSample, said: Iterable[Continuation]) -> tuple[float, ...]:
        """The task's own score of each question's answer."""
        found = {done.question: self.prompts.decode(done.tokens)[0] for done in said}
        return tuple(
            float(self.task.score(found[number], question)[self.task.metric])
            for number, question in enumerate(encoded.source.questions)
        )

    def ask(self, encoded: EncodedSample) -> tuple[float, ...]:
        """Answer every question greedily, with the model as it stands."""
        said = generate(
            self.model,
            [encoded],
            max_new_tokens=[self.budgets(encoded)],
            stop_tokens=self.prompts.stop_tokens,
        )
        return self.scores(encoded, said)


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
