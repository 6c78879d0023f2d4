"""`longseal probe`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from longseal.cli.app import (
    Flat,
    Model,
    Overwrite,
    Resume,
    app,
    chosen_tasks,
    console,
    default_folder,
    load_model,
)
from longseal.config import LoadConfig, ProbeConfig


@app.command
def probe(
    model: Model = None,
    /,
    *,
    config: Annotated[ProbeConfig, Flat] = ProbeConfig(),
    loading: Annotated[LoadConfig, Flat] = LoadConfig(),
    out: Annotated[
        Path | None, Parameter(help="Run folder. [default: runs/MODEL-TASK-probe]")
    ] = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
) -> None:
    """Find out which heads help retrieval and which harm it.

    ```
    longseal probe my-model --task lines --lengths 1k,2k
    longseal probe my-model --method exact --out runs/heads
    longseal probe my-model --method exact --prune L1H18,L13H16 --prune L5
    longseal probe my-model --channels L1H18
    ```
    """
    from longseal.probing import probe as look
    from longseal.progress import bars
    from longseal.run_folder import RunFolder, refuse_taken
    from longseal.terminal import print_next, probe_tables

    task = chosen_tasks(config, (config.task,))[0]
    path = out or default_folder(model, f"{config.task}-probe")
    refuse_taken(path, resume=resume, overwrite=overwrite)
    loaded = load_model(model, loading)
    folder = RunFolder.open(path, loaded, config, resume=resume, overwrite=overwrite)
    with bars(console) as bar:
        found = look(loaded, task, config, log=folder.log, bar=bar)
    for table in probe_tables(found):
        console.print(table)
    for note in found.notes:
        console.print(f"note: {note}", soft_wrap=True, highlight=False)
    print_next(console, results=folder.log.path)
