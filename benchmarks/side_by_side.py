"""Two ways to tune, judged alike: by free generation on held-out samples, outside the clock."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

import peer
from safetensors.torch import load_file

import longseal
from longseal import Adapter, LanguageModel
from longseal.files import Log
from longseal.scales import Scales
from longseal.tasks import Task
from longseal.tasks.asking import ask, generate_here
from longseal.tasks.prompt import EncodedSample, Prompts

Ratios = dict[str, Any]
_GRID = 6  # steps of a run that are judged before the search goes on between two of them


@dataclass(frozen=True)
class Judge:
    """Asks every question of some samples, nothing of the answer given, with the task's score."""

    model: LanguageModel
    task: Task
    prompts: Prompts
    samples: Sequence[EncodedSample]

    def accuracy(self, scales: Scales) -> float:
        """Mean score with these scales attached."""
        with scales.attached(self.model.network):
            answers = list(ask(self.task, self.prompts, self.samples, generate_here(self.model)))
        return sum(answer.scores[self.task.metric] for answer in answers) / len(answers)


@dataclass(frozen=True)
class Run:
    """What a tuning left: its steps, in order.

    Attributes:
        seconds: from the start to the end of each step.
        scales: the scales after a step, counted from 0.
    """

    name: str
    seconds: Sequence[float]
    scales: Callable[[int], Scales]
    judge: Judge
    known: dict[int, float] = field(default_factory=dict)

    def accuracy(self, step: int) -> float:
        """Held-out accuracy after a step; each is judged once, and printed."""
        if step not in self.known:
            self.known[step] = self.judge.accuracy(self.scales(step))
            found = {"step": step + 1, "seconds": self.seconds[step], "accuracy": self.known[step]}
            print(json.dumps({"by": self.name, **found}), flush=True)
        return self.known[step]

    @property
    def judged(self) -> dict[int, float]:
        """Accuracy of the steps that were judged, counted from 1."""
        return {step + 1: self.known[step] for step in sorted(self.known)}

    def best(self) -> float:
        """The best accuracy on the coarse grid."""
        return max(map(self.accuracy, grid(len(self.seconds))))

    def until(self, wanted: float) -> float | None:
        """Seconds until the wanted accuracy; None where it is never reached."""
        step = first(len(self.seconds), lambda step: self.accuracy(step) >= wanted)
        return None if step is None else self.seconds[step]


def grid(count: int) -> list[int]:
    """About `_GRID` steps of `count`, evenly spread, the last one among them."""
    apart = -(-count // _GRID)
    return sorted({*range(apart - 1, count, apart), count - 1})


def first(count: int, good: Callable[[int], bool]) -> int | None:
    """The first step that is good, as if all later ones were: a coarse grid, then halving."""
    below = -1
    for step in grid(count):
        if good(step):
            while step - below > 1:
                middle = (step + below) // 2
                below, step = (below, middle) if good(middle) else (middle, step)
            return step
        below = step
    return None


def peer_run(judge: Judge, samples: Sequence[EncodedSample], folder: Path, name: str) -> Run:
    """Train by PEFT and the Trainer, unless the folder holds such a run, and take up its steps."""
    log, sites = Log(folder / "log.jsonl"), judge.model.sites
    if not log.read(event="step"):
        network = peer.with_vectors(peer.load(judge.model.source))
        print(json.dumps({"starts": name, "load": _load()}), flush=True)
        peer.train(network, peer.rows(samples), folder, cpu=judge.model.device.type == "cpu")
    print(json.dumps({"by": name, **log.read(event="start")[-1]}), flush=True)
    return Run(
        name,
        [line["seconds"] for line in log.read(event="step")],
        lambda step: peer.scales(load_file(peer.file_of(folder, step + 1)), sites),
        judge,
    )


class Clocked(Log):
    """A log that reads the clock at every step; of a step that was made again, the last time."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._began = monotonic()
        self.steps: dict[int, float] = {}

    @property
    def seconds(self) -> float:
        """Since it was made."""
        return round(monotonic() - self._began, 2)

    def append(self, record: Mapping[str, Any]) -> None:
        """Add one line."""
        super().append(record)
        if record["event"] == "step":
            self.steps[record["step"]] = self.seconds


def our_run(judge: Judge, folder: Path, **settings: Any) -> tuple[Run, dict[str, Any]]:
    """Tune by `longseal.tune`: its steps, and what it chose at the end of it all.

    Seconds are all that passed since the call, its own judging and choosing included.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log, steps = Clocked(folder / "log.jsonl"), folder / "steps"
    print(json.dumps({"starts": "longseal", "load": _load()}), flush=True)
    adapter = longseal.tune(judge.model, judge.task, folder=steps, log=log, guard=None, **settings)
    seconds, made = log.seconds, sorted(log.steps)
    assert isinstance(adapter, Adapter)  # of scales, as kind `channel` makes it

    def scales(step: int) -> Scales:
        deltas = load_file(steps / f"step-{made[step]:04d}.safetensors")
        return Scales(adapter.scales.kind, judge.model.sites, deltas)

    run = Run("longseal", [log.steps[step] for step in made], scales, judge)
    chosen = adapter.record.get("chosen")
    return run, {
        "seconds": seconds,
        "accuracy": judge.accuracy(adapter.scales),
        "chosen": chosen,
    }


@contextmanager
def kept_in(folder: Path | None) -> Iterator[Path]:
    """The folder; a passing one where none is named."""
    if folder is None:
        with TemporaryDirectory() as passing:
            yield Path(passing)
    else:
        yield folder


def compared(wanted: float, theirs: float | None, ours: Run, whole: Mapping[str, Any]) -> Ratios:
    """How many times faster ours is; None where one side never gets to the wanted accuracy.

    Args:
        theirs: the peer's seconds until it.
        whole: what `our_run` says of the whole tuning; it counts if what it chose is good enough.
    """
    until = ours.until(wanted)
    all_of_it = whole["seconds"] if whole["accuracy"] >= wanted else None
    return {
        "ours": {"until": until, "whole": whole, "judged": ours.judged},
        "times_faster": _ratio(theirs, until),
        "times_faster_whole": _ratio(theirs, all_of_it),
    }


def _ratio(theirs: float | None, ours: float | None) -> float | None:
    return None if theirs is None or not ours else round(theirs / ours, 2)


def _load() -> list[float]:
    return [round(load, 2) for load in os.getloadavg()]
