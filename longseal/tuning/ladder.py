"""Judged long, trained short: training lengths that rise as long as that pays."""

from __future__ import annotations

from dataclasses import dataclass

from longseal.config import TuneConfig
from longseal.tuning.choose import best, better
from longseal.tuning.held_out import Candidate, Judge
from longseal.tuning.learned import State
from longseal.tuning.samples import Mixture
from longseal.tuning.training import Rung, Start, Trainer

#: Each training length is so many times the one before.
_GROWTH = 4
#: Of the first length's steps, and of its budget of movement, so much is spent at a longer one.
_LATER = 0.5
#: Where what did best reads text otherwise than before, so much of the budget is spent on steps for
#: which text counts so many times as much (docs/results.md).
_MENDING, _KEEPS = 0.5, 16.0
#: Training questions at the first length, for each task.
_QUESTIONS = 64


@dataclass(frozen=True)
class Climbed:
    """What a climb found.

    Attributes:
        rungs: training at each length, the shortest first.
        best: the best candidate of each rung, the base where nothing was better.
    """

    rungs: tuple[Rung, ...]
    best: tuple[Candidate, ...]

    def state(self, step: int) -> State | None:
        """What was learned after a step; None after none."""
        if step == 0:
            return None
        rung = next(r for r in self.rungs if r.trajectory.first < step <= r.trajectory.last)
        return rung.trajectory.state(step)


def planned(mixture: Mixture, config: TuneConfig) -> list[tuple[int, int]]:
    """Training lengths, rising to the wanted one, and the steps at each.

    A single length where it is set, or a file's own.
    """
    samples = config.samples or _QUESTIONS * len(mixture.parts)
    steps = config.steps or -(-samples // config.questions)
    found = _lengths(mixture, config)
    later = later_steps(steps)
    return list(zip(found, [steps, *[later] * (len(found) - 1)], strict=True))


def _lengths(mixture: Mixture, config: TuneConfig) -> list[int]:
    longest = max(config.length)
    if config.train_length is not None:
        return [config.train_length]
    if all(part.shortest is None for part in mixture.parts):
        return [max(part.longest for part in mixture.parts)]
    found = [max(part.shortest or 0 for part in mixture.parts)]
    while found[-1] < longest:
        found.append(min(longest, _GROWTH * found[-1]))
    return found


def climb(
    trainer: Trainer, judge: Judge, mixture: Mixture, config: TuneConfig, unchanged: Candidate
) -> Climbed:
    """Train at rising lengths, judge each at the wanted one, and stop where a longer one pays not.

    Of each length its last step is judged, and a longer one goes on from the best of those. What
    else is worth asking is asked once, of the length that did best. The paper's recipe has one
    length, and its last step is taken as it is.
    """
    rungs: list[Rung] = []
    found: list[Candidate] = []
    so_far, start = unchanged, Start()
    for length, steps in planned(mixture, config):
        rung = trainer.rung(length, start, steps, _LATER if rungs else 1.0)
        rungs.append(rung)
        last, before = rung.trajectory.last, so_far
        if last > rung.trajectory.first:
            candidate = judge.judge(rung.trajectory.state(last), last, 1.0)
            so_far = candidate if config.recipe == "paper" else better(so_far, candidate)
        found.append(so_far)
        pays = so_far is not before
        if config.recipe == "paper" or so_far.accuracy == 1.0 or not (pays or len(rungs) == 1):
            break
        state = Climbed(tuple(rungs), tuple(found)).state(so_far.step)
        fresh = start.fresh if so_far.step == last else last
        start = Start(state, so_far.strength, last, fresh)
    if config.recipe != "paper":
        place = next((p for p, rung in enumerate(rungs) if _holds(rung, so_far)), len(rungs) - 1)
        made = rungs[place].trajectory
        found[place:] = [best(judge, made.state, made.first, made.last, so_far)] * (
            len(rungs) - place
        )
    return Climbed(tuple(rungs), tuple(found))


def later_steps(steps: int) -> int:
    """How many steps follow those of the first length: at a longer one, or to mend harm."""
    return max(1, round(_LATER * steps))


def mend(trainer: Trainer, judge: Judge, climbed: Climbed) -> Climbed:
    """Train on from the best, for that it reads text as before; the last step is judged."""
    found, rung = climbed.best[-1], climbed.rungs[-1]
    last = rung.trajectory.last
    fresh = rung.fresh if found.step == last else last
    first = climbed.rungs[0].trajectory
    steps = later_steps(first.last - first.first)
    start = Start(climbed.state(found.step), found.strength, last, fresh)
    made = trainer.rung(rung.length, start, steps, _MENDING, _KEEPS)
    reached = made.trajectory.last
    if reached == last:  # no step was finite
        return climbed
    mended = judge.judge(made.trajectory.state(reached), reached, 1.0)
    return Climbed((*climbed.rungs, made), (*climbed.best, mended))


def _holds(rung: Rung, candidate: Candidate) -> bool:
    return rung.trajectory.first < candidate.step <= rung.trajectory.last
