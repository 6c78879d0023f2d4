"""What all commands share: the app, its console and the parameters that several take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter
from pydantic import TypeAdapter, ValidationError
from rich.console import Console

from longseal.config import Extend, Length, LoadConfig, TaskSettings, TuneConfig
from longseal.errors import LongsealError

if TYPE_CHECKING:  # commands import what they need: `longseal --help` should not wait for torch
    from rich.table import Table

    from longseal.evaluation import Comparison, Evaluation
    from longseal.lora import AnyAdapter
    from longseal.models.load import LanguageModel
    from longseal.tasks import Task

Model = Annotated[
    str | None, Parameter(help="Hub id, folder or .gguf file. [default: SmolLM2-135M-Instruct]")
]
Extended = Annotated[
    Extend | None, Parameter(help="What lets the model reach past its window, such as yarn:4.")
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


def in_tokens(flag: str, text: str) -> int:
    """A length that a flag gives, such as 16k.

    Raises:
        LongsealError: it is none.
    """
    try:
        return TypeAdapter(Length).validate_python(text)
    except ValidationError as error:
        reason = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise LongsealError(f"{flag}: {reason}") from None


def load_model(model: str | None, loading: LoadConfig) -> LanguageModel:
    """Load a model, and say meanwhile what is going on."""
    from longseal.models.context.folded import written_extension
    from longseal.models.load import load

    with console.status(f"loading {model or 'the default model'}"):
        loaded = load(model, loading)
    if loaded.extension is not None:
        console.print(f"window: {loaded.window:,} tokens, by {loaded.extension}")
    elif (written := written_extension(loaded.source)) is not None:
        console.print(
            f"note: the scales in this model were learned under {written.extension}; "
            f"--extend {written.extension} loads it so"
        )
    for reason, layers in loaded.structure.by_reason().items():
        console.print(f"layers without heads to scale: {layers} ({reason})")
    return loaded


def load_adapter(path: Path) -> AnyAdapter:
    """Load an adapter, and pass on what its user should know."""
    from longseal.lora import read_adapter

    loaded = read_adapter(path)
    if loaded.note is not None:
        console.print(f"note: {loaded.note}")
    return loaded


def tuned_tasks(config: TuneConfig) -> tuple[Task, ...]:
    """The tasks that are tuned on; a file among them has to be long enough to be parted."""
    from longseal.tasks import Material, one_each
    from longseal.tasks.fitting import check_parts

    tasks = one_each(config.tasks, Material(config.data, config.haystack))
    for each in tasks:
        check_parts(each, "train", "held-out")
    return tasks


def chosen_tasks(config: TaskSettings, names: Sequence[str]) -> tuple[Task, ...]:
    """The tasks of these names, and a line for each that is left out."""
    from longseal.tasks import Material, choose

    chosen = choose(names, Material(config.data, config.haystack))
    for name, reason in chosen.left_out.items():
        console.print(f"left out: {name} ({reason})")
    return chosen.tasks


def print_tuned(record: Mapping[str, Any]) -> None:
    """What tuning chose, what it gained and what it cost."""
    from longseal.terminal import chosen_line, guard_table, held_out_table

    for table in (held_out_table(record), guard_table(record)):
        if table is not None:
            console.print(table)
    console.print(chosen_line(record))


def print_found(
    found: Evaluation, comparisons: Sequence[Comparison] = (), tables: Sequence[Table] = ()
) -> None:
    """What an evaluation found, what was left out of it, and what is better than what.

    Args:
        tables: in the place of the one with a row a task and length.
    """
    from longseal.terminal import accuracy_table, comparison_lines

    for table in tables or [accuracy_table((*found.accuracy(), *found.mean()))]:
        console.print(table)
    for task, count in found.excluded.items():
        console.print(f"{task}: {count} questions do not fit the model's window and were left out")
    for line in comparison_lines(comparisons):
        console.print(line, soft_wrap=True, highlight=False)


def again(source: str, loading: LoadConfig) -> str:
    """A model as the next command has to name it."""
    words = [source, *(["--extend", loading.extend] if loading.extend else [])]
    return " ".join([*words, *(["--force"] if loading.force else [])])


def default_folder(model: str | None, name: str) -> Path:
    """Where a job's results go when the user names no folder."""
    stem = Path(model).name.removesuffix(".gguf") if model else "SmolLM2-135M-Instruct"
    task = Path(name).stem if ".jsonl" in name else name.replace("/", "-")
    return Path("runs") / f"{stem}-{task}"
