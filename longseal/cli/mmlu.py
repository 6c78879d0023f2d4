"""`longseal mmlu`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, validators

from longseal.cli.app import Flat, app, console, load_model, print_found
from longseal.cli.variants import load_variants
from longseal.config import LoadConfig


@app.command
def mmlu(
    model: Annotated[str, Parameter(help="Hub id, folder or .gguf file.")],
    folder: Annotated[Path, Parameter(help="MMLU's CSVs: a folder with dev and test in it.")],
    /,
    *,
    adapter: Annotated[
        tuple[str, ...],
        Parameter(
            help="Folder of an adapter to attach, or NAME=FOLDER; may be repeated.", negative=()
        ),
    ] = (),
    questions: Annotated[
        int | None,
        Parameter(
            help="Questions of each subject, at most. [default: all]",
            validator=validators.Number(gte=1),
        ),
    ] = None,
    loading: Annotated[LoadConfig, Flat] = LoadConfig(),
    out: Annotated[
        Path | None, Parameter(help="File (.jsonl) that the answers are kept in.")
    ] = None,
) -> None:
    """Ask MMLU's questions (5-shot) before and after: what is known must not be lost.

    Answers that OUT holds already are not asked again.

    ```
    longseal mmlu my-model mmlu/data --adapter runs/lines/adapter
    ```
    """
    from longseal.evaluation import Evaluation, against_base
    from longseal.evaluation.mmlu import evaluate_mmlu
    from longseal.files import Log
    from longseal.progress import bars

    named = load_variants(adapter)
    loaded = load_model(model, loading)
    for each in named:
        each.adapter.check_base(loaded)
    log = None if out is None else Log(out)
    with bars(console) as bar:
        found = [evaluate_mmlu(loaded, folder, questions=questions, log=log, bar=bar)]
        for each in named:
            with each.adapter.attached(loaded):
                found.append(
                    evaluate_mmlu(
                        loaded, folder, variant=each.name, questions=questions, log=log, bar=bar
                    )
                )
    longest = max(case.tokens for each in found for case in each.cases)
    # One row of all subjects; questions of two subjects may stand at the same place of their files.
    whole = Evaluation(
        tuple(
            replace(case, group="", length=longest, context=place)
            for each in found
            for place, case in enumerate(each.cases)
        )
    )
    print_found(whole, against_base(whole))
