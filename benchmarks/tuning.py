"""Our tuning beside PEFT's IA3 with the Hugging Face Trainer: time until accuracy, and memory.

Line retrieval on SmolLM2-135M, in one run on one machine: seconds until the held-out accuracy at 80
lines is .9, and peak memory of one step at 4K tokens, each side in a process of its own.

    python benchmarks/tuning.py [--quick] [--variants 12x80 --variants 50x20] [--no-memory]
"""

from __future__ import annotations

import gc
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

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
    seed, peers, reached = settings["seed"], {}, []
    for variant in variants:
        count, size = map(int, variant.split("x"))
        samples = [
            judge.prompts.encode(
                judge.task.sample(Wanted(size, 1, f"peer/{seed}/{number}", training=True))
            )
            for number in range(count)
        ]
        run = peer_run(judge, samples, folder / f"peer-{variant}-{seed}", f"peer {variant}")
        until = run.until(wanted)
        reached += [] if until is None else [until]
        peers[variant] = {"until": until, "whole": run.seconds[-1], "judged": run.judged}
        gc.collect()
    with TemporaryDirectory() as passing:
        mine, whole = our_run(judge, Path(passing), **settings)
        found = compared(wanted, min(reached, default=None), mine, whole)
    return {"peer": peers, **found}


def compare_memory(source: str, tokens: int) -> dict[str, Any]:
    """Peak memory of a step on either side, beyond what the loaded model takes, and in all."""
    found = {}
    for name, step in {"peer": peer_step, "ours": our_step}.items():
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh:
            found[name] = fresh.submit(step, source, tokens).result()
        print(json.dumps({"by": name, "tokens": tokens, **found[name]}), flush=True)
    peer_took, ours_took = (each["peak"] - each["loaded"] for each in found.values())
    return {
        "memory": found,
        "memory_share": round(ours_took / peer_took, 3),
        "memory_share_in_all": round(found["ours"]["peak"] / found["peer"]["peak"], 3),
    }


def peer_step(source: str, tokens: int) -> dict[str, int]:
    """One sample of the peer in this process: bytes once loaded, and at most."""
    prompts, task = Prompts(load_tokenizer(source)), longseal.task("lines")
    sample = fit(prompts, task, tokens, 1, "memory", training=True)
    network = peer.with_vectors(peer.load(source))
    loaded = _loaded(network)
    with TemporaryDirectory() as folder:
        peer.train(network, peer.rows([sample]), Path(folder))
    return {"loaded": loaded, "peak": peak_memory(torch.device("cpu"))}


def our_step(source: str, tokens: int) -> dict[str, int]:
    """One step of ours in this process, of as many questions as it takes by default."""
    model = longseal.load(source, dtype="float32", device="cpu")
    loaded = _loaded(model.network)
    with TemporaryDirectory() as folder:
        log = Log(Path(folder, "log.jsonl"))
        longseal.tune(
            model,
            longseal.task("lines"),
            log=log,
            length=tokens,
            train_length=tokens,
            steps=1,
            lr=peer.RATE,  # given: no other budget is tried
            held_out=2,
            guard=None,
        )
        if not log.read(event="step"):
            raise SystemExit("no step was made: the base answered the held-out questions")
    return {"loaded": loaded, "peak": peak_memory(torch.device("cpu"))}


@torch.no_grad()
def _loaded(network: Any) -> int:
    """Bytes of this process with all weights in memory."""
    network(input_ids=torch.tensor(WARM))
    gc.collect()
    return int(psutil.Process().memory_info().rss)


if __name__ == "__main__":
    run(main)
