"""Our tuning beside the paper's recipe at full length: samples as long as the wanted length.

Line retrieval on SmolLM2-135M: the peer (PEFT's IA3, the Hugging Face Trainer) trains on samples of
the wanted length, one question each; ours is told the length and no more. What is compared is the
time to the same held-out accuracy at that length: the wanted one, or the peer's best where it does
not get so far.

    python benchmarks/full_length.py [--quick] [--length 8192] [--samples 50] [--folder kept]
"""

from __future__ import annotations

import gc
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from cyclopts import run
from side_by_side import Judge, compared, kept_in, our_run, peer_run

import longseal
from longseal.measure import machine, versions
from longseal.scales import Scales
from longseal.tasks.fitting import fit
from longseal.tasks.prompt import Prompts

QUICK = {"samples": 8, "questions": 4, "held_out": 2, "steps": 2, "train_length": 420}


def main(
    *,
    model: str | None = None,
    length: int = 4096,
    samples: int = 50,
    wanted: float = 0.9,
    contexts: int = 4,
    questions: int = 8,
    seed: int = 0,
    folder: Path | None = None,
    quick: bool = False,
) -> None:
    """Run both sides and print one JSON line with the ratios last.

    Parameters
    ----------
    length
        In tokens.
    samples
        The peer's, one question each.
    contexts
        How many are judged, with `questions` each.
    folder
        Where to keep what is learned; a peer's run that is there is not made again.
    quick
        A small trial; its figures say nothing.
    """
    settings: dict[str, Any] = {"seed": seed}
    if quick:
        length, samples, contexts, questions = 640, 3, 1, 2
        settings |= QUICK
    print(json.dumps({"machine": machine(torch.device("cpu")), "versions": versions()}))
    loaded, task = longseal.load(model, dtype="float32"), longseal.task("lines")
    prompts = Prompts(loaded)
    judge = Judge(
        loaded,
        task,
        prompts,
        [fit(prompts, task, length, questions, f"judged/{i}") for i in range(contexts)],
    )
    data = [
        fit(prompts, task, length, 1, f"peer/{seed}/{i}", training=True) for i in range(samples)
    ]
    with kept_in(folder) as place, TemporaryDirectory() as passing:
        name = f"peer-{length}x{samples}-{seed}"
        theirs = peer_run(judge, data, place / name, "peer")
        goal = min(wanted, theirs.best())
        base = judge.accuracy(Scales.zeros("channel", loaded.sites))
        until = theirs.until(goal) if goal > base else None  # else it learned nothing
        gc.collect()
        ours, whole = our_run(judge, Path(passing), length=length, **settings)
        found = compared(goal, until, ours, whole)
    result = {
        "length": length,
        "base": base,
        "accuracy": goal,
        "of": contexts * questions,
        "peer": {"until": until, "whole": theirs.seconds[-1], "judged": theirs.judged},
        **found,
    }
    print(json.dumps({"benchmark": "full_length", "quick": quick, "seed": seed, **result}))


if __name__ == "__main__":
    run(main)
