"""`longseal evaluate` and `longseal tune`."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from longseal.cli.app import (
    DryRun,
    Flat,
    Model,
    Overwrite,
    Resume,
    app,
    console,
    default_folder,
    load_adapter,
    load_model,
)
from longseal.config import EvaluateConfig, LoadConfig, TuneConfig


@app.command
def evaluate(
    model: Model = None,
    /,
    *,
    config: Annotated[EvaluateConfig, Flat] = EvaluateConfig(),
    loading: Annotated[LoadConfig, Flat] = LoadConfig(),
    adapter: Annotated[Path | None, Parameter(help="Folder of an adapter to attach.")] = None,
    out: Annotated[Path | None, Parameter(help="Folder to keep the results in.")] = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    dry_run: DryRun = False,
) -> None:
    """Measure how often a model finds what it is asked for.

    ```
    longseal evaluate my-model --lengths 4k,8k,16k
    longseal evaluate my-model --adapter runs/lines/adapter --lengths 4k,8k,16k
    longseal evaluate model.gguf --lengths 2k --samples 48 --out runs/base
    ```
    """
    from longseal.estimate import Estimator
    from longseal.evaluation import evaluate as measure
    from longseal.progress import bars
    from longseal.run_folder import RunFolder, refuse_taken
    from longseal.tasks import task
    from longseal.tasks.prompt import Prompts, check_lengths
    from longseal.terminal import accuracy_table, cost_table, print_next

    wanted = task(config.task)
    if out is not None:
        refuse_taken(out, resume=resume or dry_run, overwrite=overwrite)
    scales = None if adapter is None else load_adapter(adapter)
    loaded = load_model(model, loading)
    check_lengths(Prompts(loaded), wanted, config.lengths, loaded.window)
    variant = "base" if scales is None else "tuned"
    with nullcontext() if scales is None else scales.attached(loaded):
        if dry_run:
            console.print(cost_table([Estimator(loaded, wanted).evaluation(config, variant)]))
            return
        log = None
        if out is not None:
            name = None if adapter is None else str(adapter)
            folder = RunFolder.open(
                out, loaded, config, resume=resume, overwrite=overwrite, adapter=name
            )
            log = folder.log
        with bars(console) as bar:
            found = measure(loaded, wanted, config, variant=variant, log=log, bar=bar)
    console.print(accuracy_table(found.accuracy()))
    if out is not None:
        print_next(console, results=f"{out} (longseal report {out} makes a page of them)")
    longest = max(config.lengths)
    if scales is None:
        print_next(console, next=f"longseal tune {loaded.source} --length {longest}")
    else:
        print_next(console, next=f"longseal fold {loaded.source} {adapter} FOLDED-MODEL")


@app.command
def tune(
    model: Model = None,
    /,
    *,
    config: Annotated[TuneConfig, Flat] = TuneConfig(),
    loading: Annotated[LoadConfig, Flat] = LoadConfig(),
    out: Annotated[
        Path | None, Parameter(help="Run folder. [default: runs/MODEL-TASK-tune]")
    ] = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    dry_run: DryRun = False,
) -> None:
    """Learn the scales and write them as an adapter.

    ```
    longseal tune my-model --length 31k --out runs/lines
    longseal tune my-model --length 31k --kind head --samples 256
    longseal tune model.gguf --length 4k --dry-run
    ```
    """
    from longseal.estimate import Estimator
    from longseal.progress import bars
    from longseal.run_folder import RunFolder, refuse_taken
    from longseal.tasks import task
    from longseal.tasks.prompt import Prompts, check_lengths
    from longseal.terminal import chosen_line, cost_table, print_next
    from longseal.tuning import tune as learn

    wanted = task(config.task)
    path = out or default_folder(model, f"{config.task}-tune")
    refuse_taken(path, resume=resume or dry_run, overwrite=overwrite)
    loaded = load_model(model, loading)
    check_lengths(Prompts(loaded), wanted, (config.length, config.context_length), loaded.window)
    if dry_run:
        console.print(cost_table([Estimator(loaded, wanted).tuning(config)]))
        return
    folder = RunFolder.open(path, loaded, config, resume=resume, overwrite=overwrite)
    with bars(console) as bar:
        adapter = learn(loaded, wanted, config, folder=folder.steps, log=folder.log, bar=bar)
    adapter.save(folder.adapter)
    console.print(chosen_line(adapter.record))
    print_next(
        console,
        adapter=folder.adapter,
        next=f"longseal fold {loaded.source} {folder.adapter} FOLDED-MODEL",
    )
