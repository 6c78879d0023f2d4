"""`longseal evaluate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from longseal.cli.app import (
    DryRun,
    Flat,
    Model,
    Overwrite,
    Resume,
    again,
    app,
    chosen_tasks,
    console,
    load_model,
    print_found,
)
from longseal.cli.variants import Variant, load_variants
from longseal.config import EvaluateConfig, LoadConfig
from longseal.errors import LongsealError
from longseal.record import learned

if TYPE_CHECKING:
    from longseal.evaluation import Evaluation
    from longseal.evaluation.evaluate import Attach
    from longseal.models.load import LanguageModel
    from longseal.models.tokenizer import TokenizerOnly
    from longseal.tasks import Task


@app.command
def evaluate(
    model: Model = None,
    /,
    *,
    config: Annotated[EvaluateConfig, Flat] = EvaluateConfig(),
    loading: Annotated[LoadConfig, Flat] = LoadConfig(),
    adapter: Annotated[
        tuple[str, ...],
        Parameter(
            help="Folder of an adapter to attach, or NAME=FOLDER; may be repeated.", negative=()
        ),
    ] = (),
    base: Annotated[
        bool,
        Parameter(
            help="Ask the base too, and compare; with several adapters it is asked anyway.",
            negative=(),
        ),
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
    longseal evaluate my-model --adapter runs/lines/adapter --adapter runs/vt/adapter --task lines,ruler/vt
    longseal evaluate my-model --task ruler --lengths 4k,8k --samples 20
    longseal evaluate my-model --task needle --lengths 8k,16k --depths 0,0.25,0.5,0.75,1
    longseal evaluate my-model --task qa --data hotpotqa.jsonl --truncate 31500
    longseal evaluate model.gguf --lengths 2k --samples 48 --out runs/base
    ```
    """  # noqa: E501 - a command is one line
    from longseal.evaluation import evaluate_variants
    from longseal.evaluation.plan import check_settings
    from longseal.evaluation.vllm_engine import generate_with_vllm
    from longseal.models.tokenizer import load_tokenizer
    from longseal.progress import bars
    from longseal.run_folder import RunFolder, refuse_taken
    from longseal.tasks import Recorded
    from longseal.tasks.fitting import check_lengths
    from longseal.tasks.prompt import Prompts
    from longseal.terminal import print_next

    wanted = chosen_tasks(config, config.task)
    check_settings(wanted, config)
    from_file = any(isinstance(task, Recorded) for task in wanted)
    if config.part != "all" and not from_file:
        raise LongsealError("--part is of a file's samples, and all that is asked here is made")
    if out is not None:
        refuse_taken(out, resume=resume or dry_run, overwrite=overwrite)
    if base and not adapter:
        raise LongsealError("--base compares an adapter with its base: name one with --adapter")
    if config.engine == "vllm":
        _check_vllm(model, loading, asked_more=bool(adapter) or dry_run)
    named = load_variants(adapter)
    loaded: LanguageModel | TokenizerOnly
    run = None
    variants: dict[str, Attach] = {"base": nullcontext} if base or len(named) != 1 else {}
    if config.engine == "vllm":
        loaded = load_tokenizer(model, loading.trust_remote_code)
    else:
        loaded = load_model(model, loading)
        for each in named:
            each.adapter.check_base(loaded)
            variants[each.name] = partial(each.adapter.attached, loaded)
    for task in wanted:
        check_lengths(Prompts(loaded, config.thinking), task, config.lengths, loaded.window)
    if dry_run:
        _dry_run(loaded, wanted, config, variants)
        return
    if config.engine == "vllm":
        run = generate_with_vllm(
            loaded.source,
            longest=None if from_file else max(config.lengths),
            dtype=loading.dtype,
            trust_remote_code=loading.trust_remote_code,
        )
    log = None
    if out is not None:
        given = [{"name": v.name, "path": str(v.path), "tasks": list(v.tasks)} for v in named]
        log = RunFolder.open(
            out, loaded, config, resume=resume, overwrite=overwrite, adapter=given or None
        ).log
    with bars(console) as bar:
        found = evaluate_variants(loaded, wanted, config, variants, log=log, bar=bar, run=run)
    _show(found, named, wanted, config)
    if out is not None:
        print_next(console, results=f"{out} (longseal report {out} makes a page of them)")
    shown = again(loaded.source, loading)
    if not named and config.engine != "vllm" and len(wanted) == 1 and not config.data:
        longest, name = max(config.lengths), config.task[0]
        print_next(console, next=f"longseal tune {shown} --task {name} --length {longest}")
    elif len(named) == 1:
        print_next(console, next=f"longseal fold {shown} {named[0].path} FOLDED-MODEL")


def _dry_run(
    loaded: LanguageModel | TokenizerOnly,
    tasks: Sequence[Task],
    config: EvaluateConfig,
    variants: Mapping[str, Attach],
) -> None:
    """Print what it would cost: as much for each variant."""
    from longseal.estimate import Estimator
    from longseal.models.load import LanguageModel
    from longseal.terminal import cost_table

    assert isinstance(loaded, LanguageModel), "vLLM has no dry run"
    with list(variants.values())[-1]():  # an adapter, if there is one: it takes a little longer
        costs = [Estimator(loaded, task).evaluation(config, "base") for task in tasks]
    stages = [
        replace(cost, stage=f"evaluate {variant}, {task.name}")
        for variant in variants
        for task, cost in zip(tasks, costs, strict=True)
    ]
    console.print(cost_table(stages))


def _show(
    found: Evaluation, named: Sequence[Variant], tasks: Sequence[Task], config: EvaluateConfig
) -> None:
    """Print what was found; of several adapters the transfer matrix."""
    from longseal.evaluation import against_base
    from longseal.evaluation.matrix import matrices
    from longseal.terminal import matrix_tables

    for each in named:
        if _tuned_on(each, tasks, config):
            console.print(
                f"note: {each.path} was tuned on some of these samples; --part test leaves them out"
            )
    comparisons = against_base(found)
    tuned_on = {each.name: each.tasks for each in named}
    several = len(named) > 1
    print_found(
        found,
        comparisons,
        matrix_tables(matrices(found, comparisons, tuned_on)) if several else (),
    )


def _check_vllm(model: str | None, loading: LoadConfig, *, asked_more: bool) -> None:
    """Refuse what vLLM does not do here.

    Raises:
        LongsealError: so it is.
    """
    if asked_more:
        raise LongsealError(
            "--engine vllm runs no adapter and no --dry-run: fold it, and name that"
        )
    if loading.quantize is not None:
        raise LongsealError("--engine vllm loads the weights as they are: leave --quantize out")
    if loading.extend is not None:
        raise LongsealError(
            "--engine vllm loads the model as it is: fold the extension into it with an adapter, "
            "or leave --extend out"
        )
    if model is None or model.endswith(".gguf"):
        raise LongsealError("--engine vllm takes a folder or a hub id: name the (folded) model")


def _tuned_on(variant: Variant, tasks: Sequence[Task], config: EvaluateConfig) -> bool:
    """Whether some of a file's samples that are asked are those that the adapter learned from."""
    from longseal.tasks import Recorded

    settings = variant.adapter.record.get("settings") or {}
    same = settings.get("data") == [str(path) for path in config.data]
    read = [task.name for task in tasks if isinstance(task, Recorded)]
    return same and config.part == "all" and any(learned(variant.tasks, name) for name in read)
