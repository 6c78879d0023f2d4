"""`longseal tune`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from longseal.cli.app import (
    DryRun,
    Flat,
    Model,
    Overwrite,
    Resume,
    again,
    app,
    console,
    default_folder,
    load_model,
    print_tuned,
    tuned_tasks,
)
from longseal.config import LoadConfig, TuneConfig


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
    longseal tune my-model --task needle --task lines:2 --length 4k-31k --kind head
    longseal tune my-model --length 31k --recipe paper --out runs/paper
    longseal tune model.gguf --length 4k --dry-run
    ```
    """
    from longseal.estimate import Estimator
    from longseal.progress import bars
    from longseal.run_folder import RunFolder, refuse_taken
    from longseal.terminal import cost_table, print_next
    from longseal.tuning import check_tuning
    from longseal.tuning import tune as learn

    tasks = tuned_tasks(config)
    path = out or default_folder(model, "-".join([*config.tasks, "tune"]))
    refuse_taken(path, resume=resume or dry_run, overwrite=overwrite)
    loaded = load_model(model, loading)
    check_tuning(loaded, tasks, config)
    if dry_run:
        console.print(cost_table(Estimator(loaded, tasks).tuning(config)))
        return
    folder = RunFolder.open(path, loaded, config, resume=resume, overwrite=overwrite)
    with bars(console) as bar:
        adapter = learn(loaded, tasks, config, folder=folder.steps, log=folder.log, bar=bar)
    adapter.save(folder.adapter)
    print_tuned(adapter.record)
    print_next(
        console,
        adapter=folder.adapter,
        next=f"longseal fold {again(loaded.source, loading)} {folder.adapter} FOLDED-MODEL",
    )
