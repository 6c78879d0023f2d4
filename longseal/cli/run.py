"""`longseal run`."""

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
    app,
    console,
    default_folder,
    load_model,
    print_found,
    print_tuned,
    tuned_tasks,
)
from longseal.config import LoadConfig, RunConfig


@app.command
def run(
    model: Model = None,
    /,
    *,
    config: Annotated[RunConfig, Flat] = RunConfig(),
    loading: Annotated[LoadConfig, Flat] = LoadConfig(),
    out: Annotated[Path | None, Parameter(help="Run folder. [default: runs/MODEL-TASK]")] = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    dry_run: DryRun = False,
) -> None:
    """Evaluate, tune, evaluate again, fold, reload, evaluate again, report.

    ```
    longseal run                                    # the small default model
    longseal run my-model --lengths 8k,16k,31k --out runs/lines
    longseal run model.gguf --kind head --lengths 1k,2k --dry-run
    longseal run my-model --lengths 8k,16k,31k --out runs/lines --resume
    ```
    """
    from longseal.estimate import Estimator
    from longseal.pipeline import run as run_all
    from longseal.progress import bars
    from longseal.run_folder import refuse_taken
    from longseal.tasks.fitting import check_lengths, check_parts
    from longseal.tasks.prompt import Prompts
    from longseal.terminal import cost_table, print_next
    from longseal.tuning import check_tuning

    tasks = tuned_tasks(config.tuning)
    folder = out or default_folder(model, "-".join(config.tuning.tasks))
    refuse_taken(folder, resume=resume or dry_run, overwrite=overwrite)
    loaded = load_model(model, loading)
    for each in tasks:
        check_parts(each, "test")
        check_lengths(Prompts(loaded, config.thinking), each, config.lengths, loaded.window)
    check_tuning(loaded, tasks, config.tuning)
    if dry_run:
        estimator = Estimator(loaded, tasks)
        variants = ("base", "tuned", "folded")
        base, tuned, folded = (estimator.evaluation(config.evaluation, v) for v in variants)
        costs = [base, *estimator.tuning(config.tuning), tuned, folded]
        console.print(cost_table(costs))
        return
    with bars(console) as bar:
        outcome = run_all(loaded, folder, config, resume=resume, overwrite=overwrite, bar=bar)
    print_found(outcome.evaluation, outcome.comparisons)
    print_tuned(outcome.adapter.record)
    difference = outcome.folded.logit_difference
    console.print(f"largest difference between folded and hooked logits: {difference:.1e}")
    print_next(
        console,
        report=f"{outcome.folder.report} (open it in a browser)",
        adapter=f"{outcome.folder.adapter} (PEFT reads it)",
        folded_model=f"{outcome.folder.model} (load it wherever the base was loaded)",
    )
