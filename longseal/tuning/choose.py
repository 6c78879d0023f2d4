"""Choose the step and the strength on held-out samples, by forward passes alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from longseal.files import Log
from longseal.models.load import LanguageModel
from longseal.scales import Scales
from longseal.tasks import Task
from longseal.tasks.asking import ask, generate_here
from longseal.tasks.prompt import EncodedSample, Prompts


@dataclass(frozen=True)
class Candidate:
    """A set of scales that was judged; step 0 is the unchanged model.

    Attributes:
        strength: how far along the way from unchanged (0) to the step's own scales (1).
        accuracy: mean score of the held-out questions, by free generation.
    """

    step: int
    strength: float
    accuracy: float


class Judge(Protocol):
    """Whatever measures a step's scales at a strength."""

    def judge(self, trajectory: Sequence[Scales], step: int, strength: float) -> Candidate:
        """Measure one candidate."""
        ...


class HeldOut:
    """Judges at the wanted length, by the task's own score, on samples that training never sees."""

    def __init__(
        self,
        model: LanguageModel,
        task: Task,
        prompts: Prompts,
        samples: Sequence[EncodedSample],
        log: Log | None,
    ) -> None:
        self._model, self._task, self._prompts = model, task, prompts
        self._samples = samples
        self._log = log

    def judge(self, trajectory: Sequence[Scales], step: int, strength: float) -> Candidate:
        """Ask every held-out question; a candidate that the log holds is not asked again."""
        key = {"event": "held-out accuracy", "step": step, "strength": strength}
        known = [] if self._log is None else self._log.read(**key)
        if known:
            return Candidate(step, strength, known[-1]["accuracy"])
        if step:
            with trajectory[step - 1].times(strength).attached(self._model.network):
                accuracy = self._accuracy()
        else:
            accuracy = self._accuracy()
        if self._log is not None:
            self._log.append({**key, "accuracy": accuracy})
        return Candidate(step, strength, accuracy)

    def _accuracy(self) -> float:
        run = generate_here(self._model)
        answers = list(ask(self._task, self._prompts, self._samples, run))
        return sum(a.scores[self._task.metric] for a in answers) / len(answers)


def candidates(steps: int) -> Iterator[tuple[int, float]]:
    """The steps and strengths worth asking, most promising first."""
    if steps:
        yield steps, 1.0
    if steps > 1:
        yield steps // 2, 1.0  # the rate falls: halfway is three quarters of the movement
    if steps:
        yield steps, 1.4


def choose(judge: Judge, trajectory: Sequence[Scales], unchanged: Candidate) -> Candidate:
    """The best candidate; the first one asked wins a tie, and unchanged was asked first.

    Nothing more is asked once a candidate gets everything right.
    """
    best = unchanged
    for step, strength in candidates(len(trajectory)):
        if best.accuracy == 1.0:
            break
        candidate = judge.judge(trajectory, step, strength)
        if candidate.accuracy > best.accuracy:
            best = candidate
    return best
