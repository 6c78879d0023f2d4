"""What Self-Extend costs beside the model as it is: a forward pass, an answer's token, memory.

Base and extended take turns in one process; a pass is over the whole row, its last logits alone.
Memory is of processes of their own, one a length.

    python benchmarks/extend.py [--model ...] [--length 4096] [--extend ...] [--quick]
"""

from __future__ import annotations

import json
from concurrent.futures import ProcessPoolExecutor
from math import log
from multiprocessing import get_context
from statistics import median
from time import monotonic

import torch
from cyclopts import run
from step import forget_peak, peak_memory_since
from transformers import DynamicCache

import longseal
from longseal.measure import machine, versions
from longseal.models.arguments import last_logits, takes
from longseal.models.load import LanguageModel

_STEPS = 8  # tokens that are decoded


def main(
    *,
    model: str | None = None,
    length: int = 4096,
    extend: str = "self-extend:8:1024",
    lengths: tuple[int, ...] = (2048, 4096, 8192),
    rounds: int = 3,
    quick: bool = False,
) -> None:
    """Print JSON lines, the ratios last.

    Args:
        length: tokens of the row that is timed.
        lengths: tokens of the rows whose memory is measured.
        rounds: turns; the median counts.
    """
    if quick:
        length, lengths, rounds = 512, (512, 1024), 1
        extend = "self-extend:8:128"
    models = {
        "base": longseal.load(model, dtype="float32"),
        "extended": longseal.load(model, dtype="float32", extend=extend),
    }
    device = models["base"].device
    print(json.dumps({"machine": machine(device), "versions": versions()}), flush=True)
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in models}
    for each in models.values():
        _forward(each, min(length, 512))  # the first pass of a process is slower
    for turn in range(rounds):
        for name, each in models.items():
            took[name].append((_forward(each, length), _decode(each, length)))
            seconds = dict(zip(("forward", "decode"), took[name][-1], strict=True))
            print(json.dumps({"turn": turn, "of": name, "tokens": length} | seconds), flush=True)
    ratios = {
        what: round(
            median(row[place] for row in took["extended"])
            / median(row[place] for row in took["base"]),
            2,
        )
        for place, what in enumerate(("forward", "decode"))
    }
    peaks: dict[str, list[int]] = {}
    for name, way in (("base", None), ("extended", extend)):
        for tokens in lengths:
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh:
                peaks.setdefault(name, []).append(fresh.submit(_peak, model, way, tokens).result())
            found = {"memory of": name, "tokens": tokens, "bytes": peaks[name][-1]}
            print(json.dumps(found), flush=True)
    growth = {
        name: round(log(found[-1] / found[0]) / log(lengths[-1] / lengths[0]), 2)
        for name, found in peaks.items()
    }
    print(
        json.dumps(
            {
                "benchmark": "extend",
                "quick": quick,
                "extend": extend,
                "tokens": length,
                **{f"{what}_ratio": ratio for what, ratio in ratios.items()},
                "memory_grows_with_length_to_the": growth,
            }
        )
    )


def _row(model: LanguageModel, length: int) -> torch.Tensor:
    random = torch.Generator().manual_seed(0)
    words = len(model.tokenizer)
    return torch.randint(words, (1, length), generator=random).to(model.device)


@torch.no_grad()
def _forward(model: LanguageModel, length: int) -> float:
    """Seconds of a pass over a row."""
    row, keep = _row(model, length), last_logits(model.network, 1)
    began = monotonic()
    model.network(input_ids=row, use_cache=False, **keep)
    _wait(model)
    return monotonic() - began


@torch.no_grad()
def _decode(model: LanguageModel, length: int) -> float:
    """Seconds of a token after such a row, which is kept."""
    row, keep = _row(model, length + _STEPS), last_logits(model.network, 1)
    word = "cache" if takes(model.network, "cache") else "past_key_values"
    kept = {word: DynamicCache(config=model.network.config), "use_cache": True, **keep}
    model.network(input_ids=row[:, :length], **kept)
    _wait(model)
    began = monotonic()
    for place in range(length, length + _STEPS):
        model.network(input_ids=row[:, place : place + 1], **kept)
    _wait(model)
    return (monotonic() - began) / _STEPS


def _peak(source: str | None, extend: str | None, length: int) -> int:
    """Most bytes that a pass takes beside the weights."""
    model = longseal.load(source, dtype="float32", extend=extend)
    _forward(model, 64)
    before = forget_peak(model.device)
    _forward(model, length)
    return peak_memory_since(model.device) - before


def _wait(model: LanguageModel) -> None:
    if model.device.type != "cpu":
        torch.accelerator.synchronize(model.device)


if __name__ == "__main__":
    run(main)
