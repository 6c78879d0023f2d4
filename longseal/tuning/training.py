"""Training at one length: the first steps on trial, then on until the loss stops falling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, isfinite
from pathlib import Path
from time import monotonic

from torch import Tensor

from longseal.config import TuneConfig
from longseal.files import Log
from longseal.models.load import LanguageModel
from longseal.progress import Bar
from longseal.tuning.gradient import Gradient
from longseal.tuning.held_out import put
from longseal.tuning.learned import Learned, State, snapshot
from longseal.tuning.optimisation import MOVEMENT, Optimiser, Rate, constant, falling
from longseal.tuning.replay import WEIGHT, Replay
from longseal.tuning.samples import Mixture
from longseal.tuning.trajectory import Trajectory
from longseal.tuning.watching import CHANGE, Watch

#: Where the first steps diverge or do nothing, the budget is tried times these as well.
RACE = (0.25, 4.0)
#: How often the held-out loss is looked at while steps are made at one length.
_LOOKS = 4


@dataclass(frozen=True)
class Start:
    """Where training goes on from.

    Attributes:
        state: what was learned before; None is the unchanged model.
        strength: how much of it is taken.
        steps: how many steps were made before, at other lengths.
        fresh: how many of them were made before the optimiser was: it goes on from the others.
    """

    state: State | None = None
    strength: float = 0.0
    steps: int = 0
    fresh: int = 0


@dataclass(frozen=True)
class Rung:
    """Training at one length, as it was.

    Attributes:
        length: tokens of the training contexts.
        trajectory: the steps that were made.
        seconds: what they took.
        stopped: why it ended before its last step; None where it did not.
        fresh: how many steps were made before the optimiser was.
        keeps: how many times as much as usual general text counted.
    """

    length: int
    trajectory: Trajectory
    seconds: float
    stopped: str | None
    fresh: int = 0
    keeps: float = 1.0


class Trainer:
    """Makes the steps of one tuning run; what is learned has to be attached already."""

    def __init__(
        self,
        model: LanguageModel,
        learned: Learned,
        mixture: Mixture,
        config: TuneConfig,
        replay: Replay | None,
        folder: Path | None,
        log: Log | None,
        bar: Bar,
    ) -> None:
        self._model, self._learned, self._mixture = model, learned, mixture
        self._config, self._folder, self._log, self._bar = config, folder, log, bar
        self._replay, self._gradient = replay, Gradient(model, learned, replay, log, bar)
        self._began = monotonic()
        made = [] if log is None else log.read(event="step")
        self._took = {line["step"]: line["took"] for line in made if "took" in line}  # seconds
        self._factor: float | None = None  # of the budget; once it is found, it stays
        self._moments: Mapping[str, Tensor] = {}  # the optimiser's, after the last length

    @property
    def keeps_text(self) -> bool:
        """Whether steps hold the model to how it reads text."""
        return self._replay is not None

    def rung(
        self, length: int, start: Start, steps: int, part: float = 1.0, keeps: float = 1.0
    ) -> Rung:
        """Make those steps at a length that the folder does not hold yet.

        Args:
            part: of the usual budget of movement.
            keeps: how many times as much as usual it counts that text is read as before. Where it
                counts more, all steps are made, whatever the loss does.

        Raises:
            LongsealError: memory or the disk are full; what was kept stays.
        """
        watch = Watch(self._model, self._mixture, length, self._log)
        self._gradient.plan_for(max(watch.samples, key=lambda sample: sample.tokens))
        if self._replay is not None:
            self._replay.weight = keeps * WEIGHT
        budget = part * MOVEMENT[self._config.kind]
        if self._factor is None:
            self._factor = self._raced(length)
        trajectory, stopped = self._make(length, start, steps, budget, watch, keeps)
        if stopped is _UNPROMISING:
            whole = trajectory.last - start.steps >= apart(steps)
            loss = watch.latest if whole else inf
            self._factor = self._race(length, start, steps, budget, watch, loss)
            trajectory, stopped = self._make(length, start, steps, budget, watch, keeps)
        took = [self._took.get(n, 0.0) for n in range(start.steps + 1, trajectory.last + 1)]
        return Rung(length, trajectory, round(sum(took), 1), stopped, start.fresh, keeps)

    def _raced(self, length: int) -> float | None:
        """The factor that a race at this length found before; None where there was none."""
        races = [] if self._log is None else self._log.read(event="race", tokens=length)
        return races[-1]["factor"] if races else None

    def _rate(self, budget: float, steps: int) -> Rate:
        if self._config.lr is not None:
            return constant(self._config.lr)
        return falling(budget * (self._factor or 1.0), steps)

    def _make(
        self, length: int, start: Start, steps: int, budget: float, watch: Watch, keeps: float
    ) -> tuple[Trajectory, str | None]:
        """Make what is missing of the steps. Returns all, and why they end early if they do."""
        rate = self._rate(budget, steps)
        put(self._learned, start.state, start.strength)
        before = watch.look(start.steps, rate(0))
        made_with = (
            f"{', '.join(self._config.task)}, seed {self._config.seed}, {length} tokens, "
            f"{self._config.questions} questions, first rate {rate(0)!r}"
            + ("" if keeps == 1.0 else f", text counts {keeps:g} times")
        )
        trajectory = Trajectory(self._folder, start.steps, made_with)
        optimiser = self._optimiser()
        moments = trajectory.resume()
        if moments is None and start.fresh < start.steps:
            moments = self._moments
        if moments is not None:
            optimiser.restore(moments, trajectory.last - start.fresh)
        every = apart(steps)
        work = self._bar.add_task(f"tune at {length:,} tokens", total=steps)
        for step in range(steps):
            number = start.steps + step + 1
            if number <= trajectory.last:
                self._learned.set(trajectory.state(number))
            elif failed := self._step(length, optimiser, rate(step), trajectory):
                on_trial = self._on_trial(start) and step < every
                return trajectory, _UNPROMISING if on_trial else failed
            self._moments = {name: each.clone() for name, each in optimiser.state().items()}
            self._bar.update(work, completed=step + 1)
            if (step + 1) % every:
                continue
            now = watch.look(number, rate(0))
            if step + 1 == every and self._on_trial(start) and now > (1 - CHANGE) * before:
                return trajectory, _UNPROMISING
            goes_on = keeps > 1.0 or self._config.steps is not None
            if watch.stopped and step + 1 < steps and not goes_on:
                return trajectory, "the held-out loss stopped falling"
        return trajectory, None

    def _optimiser(self) -> Optimiser:
        return Optimiser(self._learned, damped=self._config.recipe != "paper")

    def _on_trial(self, start: Start) -> bool:
        """Whether the budget may still be changed: on the first length, unless it was set."""
        return start.state is None and self._factor is None and self._config.lr is None

    def _step(
        self, length: int, optimiser: Optimiser, rate: float, trajectory: Trajectory
    ) -> str | None:
        """Make one step and keep it. Returns why it was not kept, None where it was."""
        began = monotonic()
        number = trajectory.last + 1
        contexts = self._mixture.step(length, number - 1)
        value = self._gradient.of(contexts, number)
        optimiser.step(rate)
        state = snapshot(self._learned)
        if not (isfinite(value) and all(bool(each.isfinite().all()) for each in state.values())):
            return f"the loss or a number was not finite in step {number}: kept step {number - 1}"
        trajectory.keep(state, optimiser.state())
        self._took[number] = round(monotonic() - began, 2)
        if self._log is not None:
            tokens = max(each.length for each in contexts)
            seconds = round(monotonic() - self._began, 2)
            done = {"step": number, "tokens": tokens, "loss": value, "seconds": seconds}
            self._log.append({"event": "step", **done, "took": self._took[number]})
        return None

    def _race(
        self, length: int, start: Start, steps: int, budget: float, watch: Watch, loss: float
    ) -> float:
        """Make the first steps again with other budgets. Returns the best one's factor.

        Args:
            loss: what the usual budget came to.
        """
        every = apart(steps)
        losses = {1.0: loss}
        for factor in RACE:
            put(self._learned, start.state, start.strength)
            optimiser, rate = self._optimiser(), falling(budget * factor, steps)
            work = self._bar.add_task(f"try the budget times {factor:g}", total=every)
            for step in range(every):
                self._gradient.of(
                    self._mixture.step(length, start.steps + step), start.steps + step + 1
                )
                optimiser.step(rate(step))
                self._bar.update(work, advance=1)
            losses[factor] = watch.loss()
        best = min(losses, key=lambda factor: losses[factor])
        if self._log is not None:
            told = {f"{factor:g}": value for factor, value in losses.items() if isfinite(value)}
            self._log.append({"event": "race", "tokens": length, "factor": best, "losses": told})
        return best


def apart(steps: int) -> int:
    """How many steps are made between two looks."""
    return max(1, steps // _LOOKS)


_UNPROMISING = "the first steps diverged or did nothing"
