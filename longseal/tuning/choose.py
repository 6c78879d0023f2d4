"""Choose the step and the strength on held-out samples, by forward passes alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from longseal.files import Log
from longseal.models.load import LanguageModel
from longseal.scales import Scales
from longseal.tasks import Task
from longseal.tasks.asking import ask
from longseal.tasks.prompt import EncodedSample, Prompts
from longseal.tuning.step import loss

#: Strengths at which the last step is tried beside 1, where 1 leaves something to be wished for.
_STRENGTHS = (0.7, 1.4)


@dataclass(frozen=True)
class Candidate:
    """A set of scales that was judged: step 0 is the unchanged model.

    Attributes:
        strength: how far along the way from unchanged (0) to the step's own scales (1).
        accuracy: share of held-out questions answered right, by free generation; None where the
            loss already spoke against it.
        loss: cross-entropy of the held-out answers, nats a token; None where it was not needed.
    """

    step: int
    strength: float
    accuracy: float | None = None
    loss: float | None = None

    @property
    def rank(self) -> tuple[float, float, float]:
        """Better is larger: right answers first, then the smaller change."""
        accuracy = -1.0 if self.accuracy is None else self.accuracy
        return accuracy, -self.step, -self.strength


class Judge:
    """Judges scales at the wanted length on samples that training never sees."""

    def __init__(
        self,
        model: LanguageModel,
        task: Task,
        prompts: Prompts,
        held_out: Sequence[EncodedSample],
        log: Log | None,
    ) -> None:
        self._model, self._task, self._prompts = model, task, prompts
        self._held_out = held_out
        self._log = log

    def judge(self, trajectory: Sequence[Scales], step: int, strength: float, by: str) -> Candidate:
        """Judge one candidate by `accuracy` (free generation) or by `loss` (answers given)."""
        key = {"event": f"held-out {by}", "step": step, "strength": strength}
        known = [] if self._log is None else self._log.read(**key)
        if known:
            return Candidate(step, strength, **{by: known[-1][by]})
        if step:
            with trajectory[step - 1].times(strength).attached(self._model.network):
                value = self._measure(by)
        else:
            value = self._measure(by)
        if self._log is not None:
            self._log.append({**key, by: value})
        return Candidate(step, strength, **{by: value})

    def _measure(self, by: str) -> float:
        if by == "loss":
            return sum(loss(self._model, e) for e in self._held_out) / len(self._held_out)
        answers = [
            answer.scores[self._task.metric]
            for encoded in self._held_out
            for answer in ask(self._model, self._task, self._prompts, encoded)
        ]
        return sum(answers) / len(answers)


def choose(judge: Judge, trajectory: Sequence[Scales], unchanged: Candidate) -> Candidate:
    """The best of: unchanged, the last step, and that step weaker or stronger, or an earlier one.

    The last step is asked first; only if it gets something wrong are the others ranked by their
    loss, and the best of them asked as well. Unchanged wins a tie.
    """
    if not trajectory:
        return unchanged
    last = len(trajectory)
    judged = [unchanged, judge.judge(trajectory, last, 1.0, "accuracy")]
    if judged[-1].accuracy != 1.0:
        others = [(last, strength) for strength in _STRENGTHS]
        if last > 1:
            others.append((last // 2, 1.0))
        losses = [judge.judge(trajectory, *other, "loss") for other in [(last, 1.0), *others]]
        best = min(losses, key=lambda candidate: candidate.loss or 0.0)
        if (best.step, best.strength) != (last, 1.0):
            judged.append(judge.judge(trajectory, best.step, best.strength, "accuracy"))
    return max(judged, key=lambda candidate: candidate.rank)
