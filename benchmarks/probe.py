"""Probing beside one full forward pass a head: time, memory, and how far the estimate holds.

    python benchmarks/probe.py [--length 1024] [--questions 1] [--every 1] [--quick]

A full pass is what a script would do: a hook that prunes the head, and the model called on the
prompt with its answer. It is timed on a few heads; so many heads take so many times that.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from statistics import median
from time import monotonic

import torch
from cyclopts import run
from step import forget_peak, peak_memory_since

import longseal
from longseal.measure import machine, versions
from longseal.models.load import LanguageModel
from longseal.models.sites import seats
from longseal.probing.answers import Asking
from longseal.probing.heads import pruned
from longseal.probing.pruning import Pruning
from longseal.tasks.fitting import fit
from longseal.tasks.prompt import EncodedSample, Prompts

_PASSES = 6


def main(
    *,
    model: str | None = None,
    length: int = 1024,
    questions: int = 1,
    every: int = 1,
    memory_length: int = 4096,
    seed: int = 0,
    quick: bool = False,
) -> None:
    """Print JSON lines, the ratios last.

    Args:
        questions: on one context, that every head is measured on.
        every: measure each such layer's heads alone, and take the others to cost as much.
        memory_length: tokens at which memory is measured.
    """
    if quick:
        length, every, memory_length = 640, 15, 640
    loaded = longseal.load(model, dtype="float32")
    print(json.dumps({"machine": machine(loaded.device), "versions": versions()}), flush=True)
    sample = _sample(loaded, length, questions)
    heads = [*seats(loaded.sites)]
    one = median(_whole(loaded, sample, number) for number in range(_PASSES))
    full = one * len(heads) * questions
    exact = _exact(loaded, sample, every)
    log: list[float] = []
    audit = _timed(lambda: log.append(_audit(loaded, length, questions, seed)))
    found = {
        "heads": len(heads),
        "questions": questions,
        "full_pass": round(one, 2),
        "full": round(full, 1),
        "exact": round(exact, 1),
        "audit": round(audit, 1),
        "exact_faster": round(full / exact, 2),
        "audit_faster": round(full / audit, 2),
        "audit_rank": round(log[0], 3),
    }
    print(json.dumps(found), flush=True)
    peaks = {}
    for name in ("forward", "exact", "gradient"):
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh:
            peaks[name] = fresh.submit(_peak, model, memory_length, name).result()
        print(json.dumps({"peak of": name, "tokens": memory_length, "bytes": peaks[name]}))
    shares = {name: round(peaks[name] / peaks["forward"], 2) for name in ("exact", "gradient")}
    print(json.dumps({"benchmark": "probe", "quick": quick, **found, "memory": shares}))


def _sample(model: LanguageModel, length: int, questions: int) -> EncodedSample:
    return fit(Prompts(model), longseal.task("lines"), length, questions, "benchmark")


def _asking(model: LanguageModel) -> Asking:
    return Asking(model, longseal.task("lines"), Prompts(model))


@torch.no_grad()
def _whole(model: LanguageModel, sample: EncodedSample, number: int) -> float:
    """Seconds of a pass over one prompt and answer with a head pruned by a hook."""
    head = [*seats(model.sites)][number * 37 % len([*seats(model.sites)])]
    row = torch.tensor([[*sample.prompt(0), *sample.answers[0]]], device=model.device)
    with pruned([head], model.sites).attached(model.network):
        return _timed(lambda: model.network(input_ids=row, use_cache=False))


def _exact(model: LanguageModel, sample: EncodedSample, every: int) -> float:
    """Seconds of pruning all heads in turn, those of the layers left out taken to cost as much."""
    chosen = [head for head in [*seats(model.sites)] if head.layer % every == every // 2]
    pruning = Pruning(_asking(model), sample)
    pruning.base()
    variants = [pruned([head], model.sites) for head in chosen]
    took = _timed(lambda: list(pruning.of(variants)))
    return took * len([*seats(model.sites)]) / len(chosen)


def _audit(model: LanguageModel, length: int, questions: int, seed: int) -> float:
    """Rank correlation of the audited heads."""
    found = longseal.probe(
        model,
        longseal.task("lines"),
        lengths=(length,),
        samples=questions,
        questions=questions,
        seed=seed,
    )
    return next(trust.rank for trust in found.trust if trust.among == "audited")


def _peak(source: str | None, length: int, what: str) -> int:
    """Most bytes of a process that does this, the model's weights included."""
    model = longseal.load(source, dtype="float32", device="cpu")
    sample = _sample(model, length, 1)
    forget_peak(model.device)
    if what == "forward":
        _whole(model, sample, 0)
    elif what == "gradient":
        from longseal.probing.gradient import slopes

        slopes(model, sample)
    else:
        pruning = Pruning(_asking(model), sample)
        pruning.base()
        variants = [pruned([head], model.sites) for head in [*seats(model.sites)][:2]]
        list(pruning.of(variants))
    return peak_memory_since(model.device)


def _timed(work: Callable[[], object]) -> float:
    began = monotonic()
    work()
    return monotonic() - began


if __name__ == "__main__":
    run(main)
