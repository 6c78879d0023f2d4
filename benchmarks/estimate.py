"""What `longseal tune --dry-run` foretells beside what then happens, stage by stage.

Line retrieval: first the estimate, then the tuning itself, a stage at a time. Every one of them is
a process of its own; a later stage goes on from what the one before left in the run folder, as a
resumed run does. Ratios are those of the estimate to what was measured, of the stages that came to
pass.

    python benchmarks/estimate.py [--quick] [--model ...] [--length 2048] [--kind channel]
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, Literal

import torch
from cyclopts import run
from rich.console import Console
from rich.progress import Progress, TaskID

import longseal
from longseal.config import TuneConfig
from longseal.estimate import Estimator
from longseal.files import Log
from longseal.measure import machine, peak_memory, versions
from longseal.models.default import default_model

QUICK = {"length": 1024, "samples": 16, "questions": 4, "held_out": 4}

#: By stage: seconds and bytes.
Found = dict[str, dict[str, float]]
FIRST, MEND, LOOK = "judge the base", "mend harm", "look at other formats again"
#: Text alone, before harm is mended and after (not foretold), and what comes after the look.
TEXT, MENDED, WEAKER = "look at text", "look at text, mended", "try weaker strengths"


def main(
    *,
    model: str | None = None,
    length: int = 2048,
    kind: Literal["head", "channel", "lora", "dora"] = "channel",
    guard: bool = True,
    dtype: Literal["auto", "float32", "bfloat16"] = "auto",
    device: str = "auto",
    quick: bool = False,
) -> None:
    """Print one JSON line for each stage, and one with all ratios last.

    Parameters
    ----------
    length
        At which the scales are judged.
    guard
        Look at other formats and text as well.
    quick
        A small trial; its figures say nothing.
    """
    source = model or str(default_model())
    loading = {"dtype": dtype, "device": device}
    settings: dict[str, Any] = {"length": length, "kind": kind} | (QUICK if quick else {})
    if not guard:
        settings["guard"] = None
    config = TuneConfig(**settings)
    print(json.dumps({"machine": machine(torch.device("cpu")), "versions": versions()}))
    expected = _apart(foretold, source, loading, config)
    with TemporaryDirectory() as place:
        found: Found = {}
        stage: str | None = FIRST
        while stage is not None:
            now, then = stage, expected.get(stage)
            found[now], stage = _apart(tuned, source, loading, config, Path(place), now)
            print(json.dumps({"stage": now, "foretold": then, "measured": found[now]}), flush=True)
    ratios = {name: compared(expected, found, name) for name in ("seconds", "memory")}
    print(json.dumps({"benchmark": "estimate", "quick": quick, **settings, **ratios}))


def compared(expected: Found, found: Found, name: str) -> dict[str, float]:
    """Estimate by measurement, of each stage and of the whole."""
    both = [stage for stage in found if stage in expected]
    whole: Callable[..., float] = sum if name == "seconds" else max
    pairs = {stage: (expected[stage][name], found[stage][name]) for stage in both}
    guessed, true_in_all = (
        whole(each[stage][name] for stage in both) for each in (expected, found)
    )
    pairs["in all"] = (guessed, true_in_all)
    return {stage: round(guess / true, 2) for stage, (guess, true) in pairs.items() if true}


def foretold(source: str, loading: Mapping[str, Any], config: TuneConfig) -> Found:
    """What a dry run says."""
    loaded = longseal.load(source, **loading)
    costs = Estimator(loaded, longseal.task("lines")).tuning(config)
    found: Found = {}
    at = ""
    for cost in costs:
        name = cost.stage.partition(", if")[0]
        at = at if name == "choose" else name.removeprefix("tune ")
        name = f"{name} {at}" if name == "choose" else name
        found[name] = {"seconds": round(cost.seconds, 2), "memory": cost.memory}
    return found


def tuned(
    source: str, loading: Mapping[str, Any], config: TuneConfig, folder: Path, stage: str
) -> tuple[dict[str, float], str | None]:
    """Go on with a tuning to the end of a stage: what it took, and the stage after it."""
    loaded, log = longseal.load(source, **loading), Log(folder / "log.jsonl")
    stages = Stages(stage)
    try:
        longseal.tune(
            loaded, longseal.task("lines"), config, folder=folder / "steps", log=log, bar=stages
        )
        stages.ends()
    except _EnoughError:
        pass
    took = {"seconds": round(stages.seconds, 2), "memory": peak_memory(loaded.device)}
    return took, stages.after


class _EnoughError(Exception):
    """The stage has ended."""


class Stages(Progress):
    """A bar that shows nothing, and knows from what it is told to show which stage it is.

    Attributes:
        seconds: that the stage which is measured took.
        after: the stage after it; None while there is none.
    """

    def __init__(self, measured: str) -> None:
        super().__init__(console=Console(quiet=True), disable=True)
        self.seconds = 0.0
        self.after: str | None = None
        self._measured, self._stage, self._began = measured, FIRST, monotonic()

    def add_task(self, description: str, *args: Any, **fields: Any) -> TaskID:
        """Begin a piece of work; what came before it is of the stage before."""
        self.ends()
        after = self._after(description)
        if self._stage == self._measured != after:
            self.after = after
            raise _EnoughError
        self._stage = after
        return super().add_task(description, *args, **fields)

    def ends(self) -> None:
        """The piece of work has ended."""
        if self._stage == self._measured:
            self.seconds += monotonic() - self._began
        self._began = monotonic()

    def _after(self, description: str) -> str:
        """The stage that a piece of work belongs to; none comes twice."""
        now = self._stage
        if description.startswith("tune at"):
            return MEND if now == TEXT else description.removesuffix(" tokens")
        if description.startswith("judge step"):
            if now == MEND or now.startswith("tune"):
                return f"choose {now.removeprefix('tune ')}"
            return WEAKER if now == LOOK else now
        if description == "look at text again":
            if now.startswith("choose"):
                return MENDED if now == f"choose {MEND}" else TEXT
            return WEAKER if now == LOOK else now
        if description == LOOK:
            return WEAKER if now == WEAKER else LOOK
        return now


def _apart(work: Callable[..., Any], *args: Any) -> Any:
    """Do it in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh:
        return fresh.submit(work, *args).result()


if __name__ == "__main__":
    run(main)
