"""Judge what was learned at the wanted length, by free generation on held-out samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from longseal.files import Log
from longseal.models.load import LanguageModel
from longseal.progress import Bar
from longseal.tasks.asking import ask, generate_here
from longseal.tasks.prompt import Prompts
from longseal.tuning.learned import Learned, State
from longseal.tuning.samples import Mixture


@dataclass(frozen=True)
class Candidate:
    """What was learned after a step, at a strength, and how well it does; step 0 is the base.

    Attributes:
        strength: how far along the way from unchanged (0) to the step's own numbers (1).
        accuracy: mean score of the held-out questions, by free generation; over several tasks by
            their weights.
        by_task: the mean score of each task.
    """

    step: int
    strength: float
    accuracy: float
    by_task: Mapping[str, float]


class Judge(Protocol):
    """Whatever measures a step's numbers at a strength."""

    def judge(self, state: State | None, step: int, strength: float) -> Candidate:
        """Measure one candidate; no state is the unchanged model."""
        ...


class HeldOut:
    """Judges by the tasks' own scores, on samples that training never sees.

    What is learned has to be attached already.
    """

    def __init__(
        self,
        model: LanguageModel,
        learned: Learned,
        mixture: Mixture,
        prompts: Prompts,
        log: Log | None,
        bar: Bar,
    ) -> None:
        self._model, self._learned = model, learned
        self._mixture, self._prompts = mixture, prompts
        self._log, self._bar = log, bar
        self.samples = [part.held_out() for part in mixture.parts]

    def judge(self, state: State | None, step: int, strength: float) -> Candidate:
        """Ask every held-out question; a candidate that the log holds is not asked again."""
        key = {"event": "held-out accuracy", "step": step, "strength": strength}
        known = [] if self._log is None else self._log.read(**key)
        if known:
            by_task = known[-1]["by_task"]
        else:
            put(self._learned, state, strength)
            work = self._bar.add_task(f"judge step {step}" if step else "judge the base", total=1)
            by_task = self._scores()
            self._bar.update(work, advance=1)
        found = Candidate(step, strength, self._mixture.mean(list(by_task.values())), by_task)
        if self._log is not None and not known:
            self._log.append({**key, "accuracy": found.accuracy, "by_task": by_task})
        return found

    def _scores(self) -> dict[str, float]:
        run = generate_here(self._model)
        scores = {}
        for part, samples in zip(self._mixture.parts, self.samples, strict=True):
            answers = list(ask(part.task, self._prompts, samples, run))
            right = sum(answer.scores[part.task.metric] for answer in answers)
            scores[part.task.name] = right / len(answers)
        return scores


def put(learned: Learned, state: State | None, strength: float) -> None:
    """Put the network where a candidate is; no state is the unchanged model."""
    if state is None:
        learned.set(learned.initial, 0.0)
    else:
        learned.set(state, strength)
