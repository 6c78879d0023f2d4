"""Our tuning beside PEFT's IA3 with the Hugging Face Trainer: time until accuracy, and memory.

Line retrieval on SmolLM2-135M, in one run on one machine: seconds until the held-out accuracy at 80
lines is .9, or the peer's best where it does not get so far, and peak memory of one step at 4K
tokens, each side in a process of its own.

    python benchmarks/tuning.py [--quick] [--variants 12x80 --variants 50x20] [--no-memory]
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import peer
import psutil
import torch
from cyclopts import run
from side_by_side import Judge, compared, kept_in, our_run, peer_run

import longseal
from longseal.files import Log
from longseal.measure import machine, peak_memory, versions
from longseal.models.default import default_model
from longseal.models.tokenizer import load_tokenizer
from longseal.tasks import Wanted
from longseal.tasks.fitting import budget, fit
from longseal.tasks.prompt import Prompts

WARM = [[1, 2, 3, 4] * 4]  # tokens of a first pass, so that all weights are in memory
_FREE = "longseal.tuning.memory.plan.free_bytes"
QUICK = {"samples": 8, "questions": 4, "held_out": 2, "steps": 2, "train_length": 420}


def main(
    *,
    model: str | None = None,
    variants: tuple[str, ...] = ("12x80", "50x20"),
    lines: int = 80,
    wanted: float = 0.9,
    contexts: int = 4,
    questions: int = 8,
    tokens: int = 4096,
    seed: int = 0,
    time: bool = True,
    memory: bool = True,
    folder: Path | None = None,
    quick: bool = False,
) -> None:
    """Run both sides and print one JSON line with the ratios last.

    Parameters
    ----------
    variants
        The peer's data, as SAMPLESxLINES; the one that is faster is compared with.
    lines
        Length of the contexts that are judged.
    contexts
        How many are judged, with `questions` each.
    tokens
        Length at which memory is measured.
    folder
        Where to keep what is learned; a peer's run that is there is not made again.
    quick
        A small trial; its figures say nothing.
    """
    source = model or str(default_model())
    settings: dict[str, Any] = {"seed": seed}
    if quick:
        variants, lines, contexts, questions, tokens = ("3x10",), 10, 1, 2, 640
        settings |= QUICK
    print(json.dumps({"machine": machine(torch.device("cpu")), "versions": versions()}))
    found: dict[str, Any] = {}
    if memory:  # first: a process that starts others hands its own peak down to them
        found |= compare_memory(source, tokens)
    if time:
        loaded, task = longseal.load(source, dtype="float32"), longseal.task("lines")
        prompts = Prompts(loaded)
        judged = [
            prompts.encode(task.sample(Wanted(lines, questions, f"judged/{lines}/{number}")))
            for number in range(contexts)
        ]
        length = max(sample.length for sample in judged) + budget(task, prompts)
        judge = Judge(loaded, task, prompts, judged)
        found |= {"lines": lines, "of": contexts * questions, "wanted": wanted}
        with kept_in(folder) as place:
            found |= compare_time(judge, variants, wanted, place, {"length": length} | settings)
    print(json.dumps({"benchmark": "tuning", "quick": quick, "seed": seed, **found}))


def compare_time(
    judge: Judge,
    variants: Sequence[str],
    wanted: float,
    folder: Path,
    settings: Mapping[str, Any],
) -> dict[str, Any]:
    """Seconds of both sides until the wanted accuracy."""
    seed, peers = settings["seed"], {}
    for variant in variants:
        count, size = map(int, variant.split("x"))
        samples = [
            judge.prompts.encode(
                judge.task.sample(Wanted(size, 1, f"peer/{seed}/{number}", training=True))
            )
            for number in range(count)
        ]
        peers[variant] = peer_run(
            judge, samples, folder / f"peer-{variant}-{seed}", f"peer {variant}"
        )
        gc.collect()
    goal = min(wanted, max(run.best() for run in peers.values()))
    found = {
        name: {"until": run.until(goal), "whole": run.seconds[-1], "judged": run.judged}
        for name, run in peers.items()
    }
    reached = [each["until"] for each in found.values() if each["until"] is not None]
    with TemporaryDirectory() as passing:
        mine, whole = our_run(judge, Path(passing), **settings)
        return {"peer": found, "accuracy": goal, **compared(goal, min(reached), mine, whole)}


def compare_memory(source: str, tokens: int) -> dict[str, Any]:
    """Peak memory of a step on either side, beyond what the loaded model takes, and in all.

    Ours takes what makes it fast from the memory that is free. So it is run once with all there is,
    and once with so little of it free that a step may take a third of the peer's.
    """
    found: dict[str, dict[str, Any]] = {}

    def took(name: str, step: Callable[..., dict[str, Any]], *args: Any) -> float:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh:
            found[name] = fresh.submit(step, source, tokens, *args).result()
        print(json.dumps({"by": name, "tokens": tokens, **found[name]}), flush=True)
        return float(found[name]["peak"] - found[name]["loaded"])

    theirs = took("peer", peer_step)
    ours, small = took("ours", our_step), took("ours, little free", our_step, theirs / 3)
    return {
        "memory": found,
        "memory_share": round(small / theirs, 3),
        "memory_share_all_free": round(ours / theirs, 3),
    }


def peer_step(source: str, tokens: int) -> dict[str, Any]:
    """One sample of the peer in this process: bytes once loaded, at most, and seconds."""
    prompts, task = Prompts(load_tokenizer(source)), longseal.task("lines")
    sample = fit(prompts, task, tokens, 1, "memory", training=True)
    network = peer.with_vectors(peer.load(source))
    loaded = _loaded(network)
    with TemporaryDirectory() as folder:
        peer.train(network, peer.rows([sample]), Path(folder))
        seconds = Log(Path(folder, "log.jsonl")).read(event="step")[0]["seconds"]
    return {"loaded": loaded, "peak": peak_memory(torch.device("cpu")), "seconds": seconds}


def our_step(source: str, tokens: int, room: float | None = None) -> dict[str, Any]:
    """Steps of ours in this process, of as many questions as it takes by default.

    Args:
        room: bytes that a step may take; what half of the free memory allows where it is None.
    """
    model = longseal.load(source, dtype="float32", device="cpu")
    loaded = _loaded(model.network)
    told = nullcontext() if room is None else patch(_FREE, lambda _: 2 * room)
    with TemporaryDirectory() as folder, told:
        log = Log(Path(folder, "log.jsonl"))
        longseal.tune(
            model,
            longseal.task("lines"),
            log=log,
            length=tokens,
            train_length=tokens,
            steps=2,
            lr=peer.RATE,  # given: no other budget is tried
            held_out=2,
            guard=None,
        )
        steps, plan = log.read(event="step"), log.read(event="memory")
    if not steps:
        raise SystemExit("no step was made: the base answered the held-out questions")
    found = {"loaded": loaded, "peak": peak_memory(torch.device("cpu"))}
    return {**found, "seconds": steps[-1]["took"], "way": plan[-1]["way"]}


@torch.no_grad()
def _loaded(network: Any) -> int:
    """Bytes of this process with all weights in memory."""
    network(input_ids=torch.tensor(WARM))
    gc.collect()
    return int(psutil.Process().memory_info().rss)


if __name__ == "__main__":
    run(main)
