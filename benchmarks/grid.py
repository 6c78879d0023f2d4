"""The paper's table 4 here: learning rates by sample counts, beside ours without a knob.

    python benchmarks/grid.py [--rates 5e-3 --rates 2e-2 --rates 8e-2] [--folder DIR] [--quick]

The paper's recipe (one question a sample, as long as what is judged, a constant rate, one epoch) is
run once a rate with the most samples; what it had learned after fewer is judged too. Ours is told
the length and no more. Both learn kind `channel`; both are judged by free generation on the same
questions, which neither saw.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from cyclopts import run
from safetensors.torch import load_file
from side_by_side import Judge, Run, kept_in, our_run

import longseal
from longseal.files import Log
from longseal.measure import machine, versions
from longseal.models.default import default_model
from longseal.scales import Scales
from longseal.tasks.fitting import fit
from longseal.tasks.prompt import Prompts


def main(
    *,
    model: str | None = None,
    rates: tuple[float, ...] = (5e-3, 2e-2, 8e-2),
    samples: tuple[int, ...] = (10, 30, 50),
    length: int = 1024,
    contexts: int = 4,
    questions: int = 8,
    seed: int = 0,
    folder: Path | None = None,
    quick: bool = False,
) -> None:
    """Print the grid as JSON, a cell a line and all of it last.

    Parameters
    ----------
    contexts
        How many are judged, with `questions` each.
    folder
        Where to keep what is learned; a run that is there is not made again.
    quick
        A small trial; its figures say nothing.
    """
    settings: dict[str, Any] = {"length": length, "seed": seed}
    if quick:
        rates, samples, contexts, questions = (2e-2,), (1, 2), 1, 2
        settings |= {"length": 420, "samples": 8, "questions": 4, "held_out": 2, "steps": 2}
    print(json.dumps({"machine": machine(torch.device("cpu")), "versions": versions()}))
    loaded = longseal.load(model or str(default_model()), dtype="float32")
    task, prompts = longseal.task("lines"), Prompts(loaded)
    wanted = settings["length"]
    judged = [fit(prompts, task, wanted, questions, f"grid/{i}") for i in range(contexts)]
    judge = Judge(loaded, task, prompts, judged)
    with kept_in(folder) as place:
        cells = {}
        for rate in rates:
            trained = paper_run(judge, place / f"{rate:g}", rate, max(samples), wanted, seed)
            cells[f"{rate:g}"] = {count: trained.accuracy(count - 1) for count in samples}
        _, ours = our_run(judge, place / "longseal", **settings)
    base = judge.accuracy(Scales.zeros("channel", loaded.sites))
    found = {"of": contexts * questions, "tokens": wanted, "base": base, "paper": cells}
    best = max(value for row in cells.values() for value in row.values())
    ratio = round(ours["accuracy"] / best, 2) if best else None
    print(
        json.dumps(
            {"benchmark": "grid", "quick": quick, **found, "ours": ours, "ours_to_best": ratio}
        )
    )


def paper_run(judge: Judge, folder: Path, rate: float, samples: int, length: int, seed: int) -> Run:
    """Train by the paper's recipe, unless the folder holds such a run, and take up its steps."""
    log, steps = Log(folder / "results.jsonl"), folder / "steps"
    if len(log.read(event="step")) < samples:
        folder.mkdir(parents=True, exist_ok=True)
        longseal.tune(
            judge.model,
            judge.task,
            folder=steps,
            log=log,
            length=length,
            recipe="paper",
            lr=rate,
            samples=samples,
            guard=None,
            seed=seed,
        )
    sites = judge.model.sites

    def scales(step: int) -> Scales:
        return Scales("channel", sites, load_file(steps / f"step-{step + 1:04d}.safetensors"))

    seconds = [line["seconds"] for line in log.read(event="step")]
    return Run(f"paper's recipe, rate {rate:g}", seconds, scales, judge)


if __name__ == "__main__":
    run(main)
