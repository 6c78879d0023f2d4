"""`longseal evaluate`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from longseal.cli.app import (
    DryRun,
    Flat,
    Model,
    Overwrite,
    Resume,
    app,
    chosen_tasks,
    console,
    load_adapter,
    load_model,
    print_found,
)
from longseal.config import EvaluateConfig, LoadConfig
from longseal.errors import LongsealError

if TYPE_CHECKING:
    from longseal.scales import Adapter
    from longseal.tasks import Task


@app.command
def evaluate(
    model: Model = None,
    /,
    *,
    config: Annotated[EvaluateConfig, Flat] = EvaluateConfig(),
    loading: Annotated[LoadConfig, Flat] = LoadConfig(),
    adapter: Annotated[Path | None, Parameter(help="Folder of an adapter to attach.")] = None,
    base: Annotated[
        bool, Parameter(help="With --adapter: ask the base too, and compare.", negative=())
    ] = False,
    out: Annotated[Path | None, Parameter(help="Folder to keep the results in.")] = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    dry_run: DryRun = False,
) -> None:
    """Measure how often a model finds what it is asked for.

    ```
    longseal evaluate my-model --lengths 4k,8k,16k
    longseal evaluate my-model --adapter runs/lines/adapter --base --lengths 4k,8k,16k
    longseal evaluate my-model --task ruler --lengths 4k,8k --samples 20
    longseal evaluate my-model --task needle --lengths 8k,16k --depths 0,0.25,0.5,0.75,1
    longseal evaluate my-model --task qa --data hotpotqa.jsonl --truncate 31500
    longseal evaluate model.gguf --lengths 2k --samples 48 --out runs/base
    ```
    """
    from longseal.estimate import Estimator
    from longseal.evaluation import Evaluation, compare
    from longseal.evaluation import evaluate as measure
    from longseal.evaluation.plan import check_settings
    from longseal.progress import bars
    from longseal.run_folder import RunFolder, refuse_taken
    from longseal.tasks import Recorded
    from longseal.tasks.fitting import check_lengths
    from longseal.tasks.prompt import Prompts
    from longseal.terminal import cost_table, print_next

    wanted = chosen_tasks(config, config.task)
    check_settings(wanted, config)
    if config.part != "all" and not any(isinstance(task, Recorded) for task in wanted):
        raise LongsealError("--part is of a file's samples, and all that is asked here is made")
    if out is not None:
        refuse_taken(out, resume=resume or dry_run, overwrite=overwrite)
    if base and adapter is None:
        raise LongsealError("--base compares an adapter with its base: name one with --adapter")
    if config.engine == "vllm" and (adapter is not None or dry_run):
        raise LongsealError(
            "--engine vllm runs no adapter and no --dry-run: fold it, and name that"
        )
    scales = None if adapter is None else load_adapter(adapter)
    if config.engine == "vllm":
        _with_vllm(model, config, loading, wanted, out, resume=resume, overwrite=overwrite)
        return
    loaded = load_model(model, loading)
    if scales is not None:
        scales.check_base(loaded)
    for each in wanted:
        check_lengths(Prompts(loaded, config.thinking), each, config.lengths, loaded.window)
    variants = ["base"] * (base or scales is None) + ["tuned"] * (scales is not None)

    def attached(variant: str) -> AbstractContextManager[object]:
        return scales.attached(loaded) if scales and variant == "tuned" else nullcontext()

    if dry_run:
        with attached(variants[-1]):
            estimators = [Estimator(loaded, each) for each in wanted]
        costs = [e.evaluation(config, variant) for variant in variants for e in estimators]
        console.print(cost_table(costs))
        return
    log = None
    if out is not None:
        name = None if adapter is None else str(adapter)
        folder = RunFolder.open(
            out, loaded, config, resume=resume, overwrite=overwrite, adapter=name
        )
        log = folder.log
    found = []
    with bars(console) as bar:
        for variant in variants:
            with attached(variant):
                found.append(measure(loaded, wanted, config, variant=variant, log=log, bar=bar))
    if scales is not None and _tuned_on(scales, wanted, config):
        console.print(
            "note: the adapter was tuned on some of these samples; --part test leaves them out"
        )
    cases = tuple(case for each in found for case in each.cases)
    print_found(Evaluation(cases, found[0].excluded), compare(*found) if base else ())
    if out is not None:
        print_next(console, results=f"{out} (longseal report {out} makes a page of them)")
    if scales is None and len(wanted) == 1 and not config.data:
        longest, name = max(config.lengths), config.task[0]
        print_next(console, next=f"longseal tune {loaded.source} --task {name} --length {longest}")
    elif scales is not None:
        print_next(console, next=f"longseal fold {loaded.source} {adapter} FOLDED-MODEL")


def _tuned_on(scales: Adapter, tasks: Sequence[Task], config: EvaluateConfig) -> bool:
    """Whether some of a file's samples that are asked are those that the adapter learned from."""
    from longseal.tasks import Recorded

    settings = scales.record.get("settings", {})
    same = settings.get("data") == [str(path) for path in config.data]
    named = settings.get("task") in config.task
    return same and named and config.part == "all" and any(isinstance(t, Recorded) for t in tasks)


def _with_vllm(
    model: str | None,
    config: EvaluateConfig,
    loading: LoadConfig,
    wanted: Sequence[Task],
    out: Path | None,
    *,
    resume: bool,
    overwrite: bool,
) -> None:
    """Let vLLM answer: for a base or a folded model, of which only the tokenizer is loaded here."""
    from longseal.evaluation import evaluate as measure
    from longseal.evaluation.vllm_engine import generate_with_vllm
    from longseal.models.tokenizer import load_tokenizer
    from longseal.progress import bars
    from longseal.run_folder import RunFolder
    from longseal.tasks import Recorded
    from longseal.tasks.fitting import check_lengths
    from longseal.tasks.prompt import Prompts
    from longseal.terminal import print_next

    if model is None or model.endswith(".gguf"):
        raise LongsealError("--engine vllm takes a folder or a hub id: name the (folded) model")
    loaded = load_tokenizer(model, loading.trust_remote_code)
    for each in wanted:
        check_lengths(Prompts(loaded, config.thinking), each, config.lengths, loaded.window)
    run = generate_with_vllm(
        model,
        longest=None if any(isinstance(t, Recorded) for t in wanted) else max(config.lengths),
        dtype=loading.dtype,
        trust_remote_code=loading.trust_remote_code,
    )
    log = None
    if out is not None:
        log = RunFolder.open(out, loaded, config, resume=resume, overwrite=overwrite).log
    with bars(console) as bar:
        found = measure(loaded, wanted, config, log=log, bar=bar, run=run)
    print_found(found)
    if out is not None:
        print_next(console, results=f"{out} (longseal report {out} makes a page of them)")
