"""Line retrieval on SmolLM2-135M before and after tuning: the figures of docs/results.md.

Two recipes, each through `longseal.tune` itself: short contexts (about 20 lines, 16 steps of 8
questions) and longer ones (about 70 lines, 12 steps of 16). Asked by free greedy generation over
contexts of 20 to 160 lines that no training saw, and, where it is at hand, over the first cases of
LongEval's own 200-line file with LongEval's score.

    python benchmarks/lines.py [--longeval 200_lines.jsonl] [--recipe short|long] [--contexts 3]
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Literal

from cyclopts import run

import longseal
from longseal.config import TuneConfig
from longseal.measure import machine, peak_memory, versions
from longseal.tasks import Wanted
from longseal.tasks.asking import ask, generate_here
from longseal.tasks.lines import read_longeval
from longseal.tasks.prompt import EncodedSample, Prompts

LONGEVAL = Path(__file__).parents[2] / "shared/data/longeval/lines/200_lines.jsonl"


@dataclass(frozen=True)
class Recipe:
    """How to tune, and how many lines to be asked about."""

    tuning: TuneConfig
    lines: tuple[int, ...]
    longeval_cases: int


RECIPES = {
    "short": Recipe(TuneConfig(length=2048, train_length=560), (20, 40, 80), 0),
    "long": Recipe(
        TuneConfig(length=3584, train_length=1700, samples=192, questions=16, held_out=8),
        (80, 160),
        12,
    ),
}


def main(
    *,
    longeval: Path = LONGEVAL,
    recipe: Literal["short", "long", "both"] = "both",
    contexts: int = 3,
    kind: Literal["head", "channel"] = "channel",
    quick: bool = False,
) -> None:
    """Tune, ask and print one JSON line for every measurement.

    Parameters
    ----------
    quick
        One recipe, one context a length.
    """
    if quick:
        recipe, contexts = "short", 1
    model = longseal.load(dtype="float32")
    task, prompts = longseal.task("lines"), Prompts(model)
    print(json.dumps({"machine": machine(model.device), "versions": versions()}))

    def measure(name: str, samples: Sequence[EncodedSample]) -> dict[str, object]:
        right = sentence = total = 0
        for answer in ask(task, prompts, samples, generate_here(model)):
            question = samples[answer.sample].source.questions[answer.question]
            right += int(answer.scores[task.metric])
            sentence += question.answer in answer.prediction
            total += 1
        return {"asked": name, "right": right, "whole_sentence": sentence, "of": total}

    for chosen in RECIPES if recipe == "both" else [recipe]:
        settings = RECIPES[chosen]
        asked = {
            f"{lines} lines": [
                prompts.encode(task.sample(Wanted(lines, 8, f"figures/{lines}/{index}")))
                for index in range(contexts)
            ]
            for lines in settings.lines
        }
        if settings.longeval_cases and longeval.is_file():
            cases = read_longeval(longeval)[: settings.longeval_cases]
            asked["LongEval, 200 lines"] = [prompts.encode(case) for case in cases]
        for name, samples in asked.items():
            print(json.dumps({"recipe": chosen, "model": "base", **measure(name, samples)}))
        started = monotonic()
        adapter = longseal.tune(model, task, settings.tuning.model_copy(update={"kind": kind}))
        cost = {"seconds": round(monotonic() - started), "peak_memory": peak_memory(model.device)}
        print(json.dumps({"recipe": chosen, "kind": kind, **cost, **adapter.record}))
        with adapter.attached(model):
            for name, samples in asked.items():
                print(json.dumps({"recipe": chosen, "model": kind, **measure(name, samples)}))


if __name__ == "__main__":
    run(main)
