"""`longseal probe`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
    load_adapter,
    load_model,
)
from longseal.config import LoadConfig, ProbeConfig
from longseal.errors import LongsealError

if TYPE_CHECKING:
    from longseal.models.load import LanguageModel
    from longseal.probing import Quadrants
    from longseal.scales import Adapter


@app.command
def probe(
    model: Model = None,
    /,
    *,
    config: Annotated[ProbeConfig, Flat] = ProbeConfig(),
    loading: Annotated[LoadConfig, Flat] = LoadConfig(),
    adapter: Annotated[
        Path | None,
        Parameter(
            help="Scales to look at beside: what they are, and what decides a question that the "
            "model answers right with them alone."
        ),
    ] = None,
    out: Annotated[
        Path | None, Parameter(help="Run folder. [default: runs/MODEL-TASK-probe]")
    ] = None,
    save: Annotated[
        Path | None,
        Parameter(help="With --quadrants: write the best rescaling as an adapter, no training."),
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
    longseal probe my-model --lengths 512,1k,2k --quadrants --save rescaled
    longseal probe my-model --looks --adapter runs/lines/adapter
    ```
    """
    from longseal.probing import check
    from longseal.probing import probe as look
    from longseal.progress import bars
    from longseal.report import report
    from longseal.run_folder import RunFolder, refuse_taken
    from longseal.terminal import print_next, probe_tables, quadrant_tables, why_tables

    if save is not None and not config.quadrants:
        raise LongsealError("--save writes the best of the rescaled quadrants: add --quadrants")
    task = chosen_tasks(config, (config.task,))[0]
    path = out or default_folder(model, f"{config.task}-probe")
    refuse_taken(path, resume=resume, overwrite=overwrite)
    scales = None if adapter is None else load_scales(adapter)
    loaded = load_model(model, loading)
    check(loaded, task, config, scales)
    named = {} if adapter is None else {"adapter": str(adapter)}
    folder = RunFolder.open(path, loaded, config, resume=resume, overwrite=overwrite, **named)
    with bars(console) as bar:
        found = look(loaded, task, config, adapter=scales, log=folder.log, bar=bar)
    folder.log.append({"event": "probe", **found.to_json()})
    page = report(folder.path)
    tables = probe_tables(found) + why_tables(found)
    if found.quadrants is not None:
        tables += quadrant_tables(found.quadrants)
    for table in tables:
        console.print(table)
    for note in found.notes:
        console.print(f"note: {note}", soft_wrap=True, highlight=False)
    if found.quadrants is not None and save is not None:
        save_best(found.quadrants, loaded, config, save)
    print_next(console, results=folder.log.path, report=f"{page} (open it in a browser)")


def save_best(quadrants: Quadrants, model: LanguageModel, config: ProbeConfig, path: Path) -> None:
    """Write the best rescaling as an adapter, unless nothing is better than the model as it is."""
    from longseal.probing.quadrants import adapter_of

    if quadrants.best == "base":
        console.print("no rescaling is better than the model as it is: no adapter was written")
        return
    scores = {
        name: {
            str(each.answered.length): each.answered.accuracy
            for each in quadrants.rescaled
            if each.name == name
        }
        for name in ("base", quadrants.best)
    }
    record = {
        "task": config.task,
        "settings": config.model_dump(mode="json"),
        "rescaled": quadrants.best,
        "held_out": scores,
    }
    adapter_of(quadrants.best, quadrants, model, record).save(path)
    console.print(f"{quadrants.best} was written as an adapter: {path}")


def load_scales(path: Path) -> Adapter:
    """An adapter that holds scales.

    Raises:
        LongsealError: it cannot be read, or is a LoRA.
    """
    from longseal.scales import Adapter

    adapter = load_adapter(path)
    if not isinstance(adapter, Adapter):
        raise LongsealError(
            f"{path} holds no scales of heads to look at: name one of kind head or channel"
        )
    return adapter
