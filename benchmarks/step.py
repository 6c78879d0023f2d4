"""What one training step costs: with many questions on a context, and as the length grows.

First a step (forward and backward pass) with 16 questions on a context beside one with a single
question on the same context, taking turns. Then a step at each length, in a process of its own so
that its memory is its own: seconds, peak memory beside the weights, and what `step_bytes` foretold.

    python benchmarks/step.py [--model ...] [--length 2048] [--lengths 512,1k,2k,4k,8k] [--quick]
"""

from __future__ import annotations

import ctypes
import gc
import json
from concurrent.futures import ProcessPoolExecutor
from math import log
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any

import altair as alt
import psutil
import torch
from cyclopts import run
from rich.console import Console
from rich.table import Table

import longseal
from longseal.config import LoadConfig
from longseal.measure import machine, peak_memory, versions
from longseal.models.load import LanguageModel
from longseal.models.saving import Way, saving
from longseal.tasks.fitting import fit
from longseal.tasks.loss import loss
from longseal.tasks.prompt import EncodedSample, Prompts
from longseal.tuning.learned import LearnedScales
from longseal.tuning.memory import step_bytes

_LINEAR = 1.15  # memory's growth from one length to the next, as a power of the length
Cost = dict[str, Any]


def main(
    *,
    model: str | None = None,
    length: int = 2048,
    questions: int = 16,
    lengths: tuple[int, ...] = (512, 1024, 2048, 4096, 8192),
    way: Way = "attention",
    rounds: int = 3,
    device: str = "auto",
    out: Path | None = None,
    quick: bool = False,
) -> None:
    """Print a JSON line for each step, a table, and the ratios; draw the lengths into `out`.

    Args:
        length: of the context that one and many questions share.
        way: how layers are run at each length.
        out: a .svg, .png or .html file for the chart.
    """
    if quick:
        length, lengths, rounds = 512, (384, 768), 1
    config = LoadConfig(device=device, dtype="float32")
    loaded = longseal.load(model, config)
    print(json.dumps({"machine": machine(loaded.device), "versions": versions()}), flush=True)
    found = many_questions(loaded, length, questions, rounds)
    del loaded
    costs = [in_own_process(model, config, each, way) for each in lengths]
    Console().print(table(costs))
    if out is not None:
        chart(costs).save(out)
    grows = growth(costs)
    said = "linearly" if grows <= _LINEAR else "faster than linearly"
    print(f"memory grows {said}: as the length to the power of {grows:.2f}")
    ratios = [round(cost["foretold"] / cost["peak"], 2) for cost in costs]
    print(json.dumps({**found, "memory_power": round(grows, 2), "foretold_over_peak": ratios}))


def many_questions(
    model: LanguageModel, length: int, questions: int, rounds: int
) -> dict[str, float | int]:
    """Seconds of a step with all questions over those of a step with one; medians."""
    many = sample(model, length, questions)
    one = many.only([0])
    learned = LearnedScales("channel", model)
    seconds: dict[str, list[float]] = {"one": [], "many": []}
    with learned.attached(model.network):
        loss(model, sample(model, 384, 1), backward=True)  # what is done once
        for _ in range(rounds):
            for name, each in {"one": one, "many": many}.items():
                seconds[name].append(timed(model, each))
                shown = {"questions": name, "seconds": round(seconds[name][-1], 3)}
                print(json.dumps(shown | {"tokens": each.tokens}), flush=True)
    return {
        "questions": len(many.questions),
        "tokens_ratio": round(many.tokens / one.tokens, 2),
        "step_ratio": round(median(seconds["many"]) / median(seconds["one"]), 2),
    }


def sample(model: LanguageModel, length: int, questions: int) -> EncodedSample:
    """Lines whose context is as long as asked for, with room for all questions."""
    task = longseal.task("lines")
    return fit(Prompts(model), task, length, questions, "benchmark", training=True)


def timed(model: LanguageModel, encoded: EncodedSample) -> float:
    """Seconds of one step."""
    began = monotonic()
    loss(model, encoded, backward=True)
    if model.device.type == "cuda":
        torch.cuda.synchronize()
    return monotonic() - began


def in_own_process(model: str | None, config: LoadConfig, length: int, way: Way) -> Cost:
    """The cost of a step in a fresh process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        cost = process.submit(one_step, model, config, length, way).result()
    print(json.dumps(cost), flush=True)
    return cost


def one_step(source: str | None, config: LoadConfig, length: int, way: Way) -> Cost:
    """Seconds of a step, its peak memory beside the weights, and what was foretold, in bytes."""
    model = longseal.load(source, config)
    encoded, learned = sample(model, length, 1), LearnedScales("channel", model)
    with learned.attached(model.network):
        foretold = step_bytes(model, learned, encoded, way)
        before = forget_peak(model.device)
        with saving(model.network, way):
            seconds = timed(model, encoded)
        peak = peak_memory_since(model.device) - before
    return {"tokens": encoded.tokens, "seconds": seconds, "peak": peak, "foretold": foretold}


def forget_peak(device: torch.device) -> int:
    """Count the peak from here on. Returns the bytes in use."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return int(torch.cuda.memory_allocated(device))
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # glibc: what was freed before does not count as in use
    Path("/proc/self/clear_refs").write_text("5")  # Linux: VmHWM starts again
    return int(psutil.Process().memory_info().rss)


def peak_memory_since(device: torch.device) -> int:
    """Most bytes in use since the peak was forgotten."""
    if device.type == "cuda":
        return peak_memory(device)
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024


def growth(costs: list[Cost]) -> float:
    """The power of the length that peak memory goes by between the last two lengths."""
    before, last = costs[-2:]
    return log(last["peak"] / before["peak"]) / log(last["tokens"] / before["tokens"])


def table(costs: list[Cost]) -> Table:
    """A row for each length."""
    made = Table("tokens", "seconds", "peak, GiB", "foretold, GiB", "bytes a token")
    for cost in costs:
        made.add_row(
            f"{cost['tokens']:,}",
            f"{cost['seconds']:.2f}",
            f"{cost['peak'] / 2**30:.3f}",
            f"{cost['foretold'] / 2**30:.3f}",
            f"{cost['peak'] / cost['tokens']:,.0f}",
        )
    return made


def chart(costs: list[Cost]) -> alt.HConcatChart:
    """Seconds and peak memory of one step over the tokens of its row."""
    rows = [cost | {"peak_gib": cost["peak"] / 2**30} for cost in costs]
    base = (
        alt.Chart(alt.InlineData(rows))
        .mark_line(point=True)
        .encode(x=alt.X("tokens:Q", title="tokens of the row"))
    )
    seconds = base.encode(y=alt.Y("seconds:Q", title="seconds a step"))
    memory = base.encode(y=alt.Y("peak_gib:Q", title="peak memory beside the weights, GiB"))
    return alt.hconcat(seconds, memory)


if __name__ == "__main__":
    run(main)
