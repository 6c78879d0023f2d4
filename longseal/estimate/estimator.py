"""The cost of evaluating and of tuning, stage by stage."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic

from longseal.config import EvaluateConfig, TuneConfig
from longseal.estimate.cost import Cost
from longseal.estimate.passes import Passes, shortest
from longseal.evaluation.plan import plan
from longseal.models.load import LanguageModel
from longseal.models.work import operations
from longseal.tasks import Task
from longseal.tasks.loss import loss, parts
from longseal.tasks.prompt import EncodedSample, Prompts
from longseal.tuning.bound import guard_of
from longseal.tuning.choose import MOST_READS, others
from longseal.tuning.guard import places
from longseal.tuning.ladder import later_steps, planned
from longseal.tuning.learned import Learned, learned_of
from longseal.tuning.memory import Plan, fitting_plan
from longseal.tuning.recipe import followed
from longseal.tuning.replay import Replay, kept_text
from longseal.tuning.samples import Mixture
from longseal.tuning.training import apart


class Estimator:
    """Estimates stages for one model; a training step is timed as well, on the first contexts."""

    def __init__(self, model: LanguageModel, task: Task | Sequence[Task]) -> None:
        self._model = model
        self._tasks = [task] if isinstance(task, Task) else list(task)
        self._passes = Passes(model)
        self._step: float | None = None  # seconds of a training step, by operation
        self._kept = 0.0  # and those that keeping general text adds
        self._replay: Replay | None = None

    def evaluation(self, config: EvaluateConfig, variant: str) -> Cost:
        """Cost of evaluating one variant."""
        prompts = Prompts(self._model, config.thinking)
        models = 2 if variant == "folded" else 1  # the base is still there
        parts = []
        for task in self._tasks:
            made = plan(task, prompts, config, self._model.window).samples
            samples = [sample.encoded for sample in made]
            asked = [(task, samples)]
            learned = variant != "base"
            parts.append(self._passes.answers(prompts, asked, models, learned=learned))
        return Cost.of(f"evaluate {variant}", parts)

    def tuning(self, config: TuneConfig) -> list[Cost]:
        """Costs of judging what there is, of each training length, and of the last look.

        Longer training lengths than the first are only tried as long as they pay. Text is looked at
        as often as it may have to be; one weaker strength is counted, and more may be tried.
        """
        config = followed(config)
        prompts = Prompts(self._model, config.thinking)
        mixture = Mixture.of(self._tasks, prompts, config, self._model.window)
        texts, formats = self._guarding(prompts, config)
        before, after = (
            Cost.of(
                "judge",
                [
                    self._passes.answers(prompts, [(part.task, part.held_out())], learned=tuned)
                    for part in mixture.parts
                ],
            )
            for tuned in (False, True)
        )
        costs = [Cost.of("judge the base", [before, texts, formats])]
        learned = learned_of(config.kind, self._model, config.seed)
        with learned.attached(self._model.network):
            self._replay = kept_text(self._model, prompts, config)
            rungs = planned(mixture, config)
            for place, (length, steps) in enumerate(rungs):
                pays = ", if it pays" if place else ""
                ends = place == len(rungs) - 1 and config.recipe != "paper"
                asked = 1 + (len(list(others(0, steps))) if ends else 0)
                costs += [
                    self._training(learned, mixture, length, steps, f"tune at {length:,}{pays}"),
                    Cost.of(f"choose{pays}", [after] * asked),
                ]
            if self._replay is not None:
                length, steps = rungs[-1][0], later_steps(rungs[0][1])
                costs += [
                    self._training(learned, mixture, length, steps, "mend harm, if there is any"),
                    Cost.of("choose, if there is any", [after]),
                ]
        if config.guard is not None:
            costs += [
                Cost.of("look at text", [texts] * MOST_READS),
                Cost.of("look at other formats again", [texts, formats]),
                Cost.of("try weaker strengths, if there is harm", [after, texts]),
            ]
        return costs

    def _training(
        self, learned: Learned, mixture: Mixture, length: int, steps: int, stage: str
    ) -> Cost:
        """Cost of the steps at one length: the first one of the first length is made, and timed."""
        contexts = mixture.step(length, 0)
        rows = self._rows(contexts)
        began = monotonic()
        plan = fitting_plan(self._model, learned, contexts[0])
        measuring = monotonic() - began
        if self._step is None:  # of the shortest contexts
            self._step = self._timed(plan, contexts) / self._work(rows)
            self._kept = self._timed_replay()
        looks = 1 + steps // apart(steps)
        watched = self._rows([part.watched(length) for part in mixture.parts])
        seconds = (
            measuring
            + steps * (self._step * self._work(rows) + self._kept)
            + looks * sum(self._passes.seconds(row.tokens) for row in watched)
        )
        tokens = steps * _tokens(rows) + looks * _tokens(watched)
        return Cost(stage, tokens, steps, seconds, self._passes.held + (plan.need or 0))

    def _rows(self, contexts: Sequence[EncodedSample]) -> list[EncodedSample]:
        return [row for context in contexts for row in parts(self._model, context)]

    def _work(self, rows: Sequence[EncodedSample]) -> float:
        return sum(operations(self._model, row.tokens) for row in rows)

    def _timed_replay(self) -> float:
        """Seconds that keeping general text adds to a step."""
        replay = self._replay
        return 0.0 if replay is None else shortest(lambda: replay.backward(1))

    def _timed(self, plan: Plan, contexts: Sequence[EncodedSample]) -> float:
        """Seconds of one step."""

        def step() -> None:
            for context in contexts:
                loss(self._model, context, backward=True)

        with plan.saving(self._model.network):
            return shortest(step)

    def _guarding(self, prompts: Prompts, config: TuneConfig) -> tuple[Cost, Cost]:
        """Costs of looking at text once, and at other formats."""
        guard = guard_of(self._model, prompts, self._tasks, config)
        if guard is None:
            return Cost.of("text", []), Cost.of("formats", [])
        lengths = [len(piece) for text in guard.texts for piece in text.pieces]
        seen = [count for text in guard.texts for count in places(self._model, text)]
        texts = self._passes.texts(lengths, seen)
        formats = [(each.task, each.samples) for each in guard.formats]
        return texts, self._passes.answers(prompts, formats)


def _tokens(rows: Sequence[EncodedSample]) -> int:
    return sum(row.tokens for row in rows)
