"""Commands to functions: each parses, calls the library and says what came of it."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, CycloptsError, Parameter
from pydantic import ValidationError
from rich.console import Console

from longseal.config import EvaluateConfig, LoadConfig, RunConfig, TuneConfig
from longseal.errors import LongsealError

if TYPE_CHECKING:  # commands import what they need: `longseal --help` should not wait for torch
    from longseal.models.load import LanguageModel

Model = Annotated[
    str | None, Parameter(help="Hub id, folder or .gguf file. [default: SmolLM2-135M-Instruct]")
]
Flat = Parameter(name="*")
Resume = Annotated[bool, Parameter(help="Go on with an interrupted run.", negative=())]
Overwrite = Annotated[bool, Parameter(help="Throw an earlier run away first.", negative=())]
DryRun = Annotated[bool, Parameter(help="Print what it would cost, and do nothing.", negative=())]

console = Console()
app = App(
    name="longseal",
    help="Make a long-context language model find what stands in its own context.",
    help_format="markdown",
    suppress_keyboard_interrupt=False,  # main says how to go on
)


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
    from longseal.tasks import task
    from longseal.tasks.prompt import Prompts, check_lengths
    from longseal.terminal import accuracy_table, chosen_line, cost_table, print_next

    wanted = task(config.task)
    folder = out or _default_folder(model, config.task)
    refuse_taken(folder, resume=resume or dry_run, overwrite=overwrite)
    loaded = _load(model, loading)
    lengths = (*config.lengths, config.tuning.length, config.tuning.context_length)
    check_lengths(Prompts(loaded), wanted, lengths, loaded.window)
    if dry_run:
        estimator = Estimator(loaded, wanted)
        variants = ("base", "tuned", "folded")
        base, tuned, folded = (estimator.evaluation(config.evaluation, v) for v in variants)
        costs = [base, estimator.tuning(config.tuning), tuned, folded]
        console.print(cost_table(costs))
        return
    with bars(console) as bar:
        outcome = run_all(loaded, folder, config, resume=resume, overwrite=overwrite, bar=bar)
    console.print(accuracy_table(outcome.accuracy))
    console.print(chosen_line(outcome.adapter.record))
    difference = outcome.folded.logit_difference
    console.print(f"largest difference between folded and hooked logits: {difference:.1e}")
    print_next(
        console,
        report=f"{outcome.folder.report} (open it in a browser)",
        adapter=f"{outcome.folder.adapter} (PEFT reads it)",
        folded_model=f"{outcome.folder.model} (load it wherever the base was loaded)",
    )


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
    from longseal.scales import Adapter
    from longseal.tasks import task
    from longseal.tasks.prompt import Prompts, check_lengths
    from longseal.terminal import accuracy_table, cost_table, print_next

    wanted = task(config.task)
    if out is not None:
        refuse_taken(out, resume=resume or dry_run, overwrite=overwrite)
    scales = None if adapter is None else Adapter.load(adapter)
    loaded = _load(model, loading)
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
    path = out or _default_folder(model, f"{config.task}-tune")
    refuse_taken(path, resume=resume or dry_run, overwrite=overwrite)
    loaded = _load(model, loading)
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


@app.command
def fold(
    model: str,
    adapter: Path,
    out: Path,
    /,
    *,
    loading: Annotated[LoadConfig, Flat] = LoadConfig(),
) -> None:
    """Write an adapter's scales into the model's own weights, as a new folder.

    ```
    longseal fold my-model runs/lines/adapter my-model-sealed
    longseal fold model.gguf runs/lines/adapter my-model-sealed
    ```

    Parameters
    ----------
    model
        Hub id, folder or .gguf file.
    adapter
        Folder of the adapter.
    out
        Folder to make; it must not exist yet.
    """
    from longseal.fold import check_target
    from longseal.fold import fold as write
    from longseal.scales import Adapter
    from longseal.terminal import print_next

    scales = Adapter.load(adapter)
    check_target(out)
    loaded = _load(model, loading)
    with console.status("folding"):
        folded = write(loaded, scales, out)
    console.print(
        f"largest difference between folded and hooked logits: {folded.logit_difference:.1e}, "
        f"largest rounding of a weight: {folded.rounding:.1e} of its tensor's largest"
    )
    print_next(console, folded_model=out, next=f"longseal evaluate {out}")


@app.command
def report(folder: Path, /) -> None:
    """Make one HTML page, which opens offline, of a run folder.

    ```
    longseal report runs/lines
    ```

    Parameters
    ----------
    folder
        Run folder of `longseal run`, `evaluate` or `tune`.
    """
    from longseal.report import report as write
    from longseal.terminal import print_next

    print_next(console, report=f"{write(folder)} (open it in a browser)")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line: errors of the user are one line and exit code 2, never a traceback."""
    command = sys.argv[1:] if arguments is None else list(arguments)
    try:
        app(command, exit_on_error=False, print_error=False)
    except (LongsealError, CycloptsError) as error:
        _fail(_one_line(error), 2)
    except KeyboardInterrupt:
        kept = command[:1] in (["run"], ["tune"]) or any(c.startswith("--out") for c in command)
        words = [c for c in command if c not in ("--overwrite", "--resume")] + ["--resume"] * kept
        _fail(f"interrupted. To go on: longseal {shlex.join(words)}", 130)
    except Exception as error:
        if os.environ.get("LONGSEAL_DEBUG"):
            raise
        _fail(
            f"unexpected {type(error).__name__}: {_one_line(error)} "
            "(LONGSEAL_DEBUG=1 shows where; please report it)",
            1,
        )


def _fail(message: str, code: int) -> None:
    Console(stderr=True).print(
        f"longseal: {message}", soft_wrap=True, highlight=False, markup=False
    )
    sys.exit(code)


def _one_line(error: BaseException) -> str:
    cause = error.__cause__
    if isinstance(cause, ValidationError):
        first = cause.errors()[0]
        flag = str(first["loc"][0]).replace("_", "-") if first["loc"] else ""
        return f"--{flag}: {first['msg'].removeprefix('Value error, ')}"
    return " ".join(str(error).split())


def _load(model: str | None, loading: LoadConfig) -> LanguageModel:
    from longseal.models.load import load

    with console.status(f"loading {model or 'the default model'}"):
        return load(model, loading)


def _default_folder(model: str | None, name: str) -> Path:
    stem = Path(model).name.removesuffix(".gguf") if model else "SmolLM2-135M-Instruct"
    return Path("runs") / f"{stem}-{name}"
