"""What all commands share: the app, its console and the parameters that several take."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter
from rich.console import Console

from longseal.config import LoadConfig, TaskSettings

if TYPE_CHECKING:  # commands import what they need: `longseal --help` should not wait for torch
    from longseal.evaluation import Comparison, Evaluation
    from longseal.models.load import LanguageModel
    from longseal.scales import Adapter
    from longseal.tasks import Task

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


def load_model(model: str | None, loading: LoadConfig) -> LanguageModel:
    """Load a model, and say meanwhile what is going on."""
    from longseal.models.load import load

    with console.status(f"loading {model or 'the default model'}"):
        loaded = load(model, loading)
    for reason, layers in loaded.structure.by_reason().items():
        console.print(f"layers without heads to scale: {layers} ({reason})")
    return loaded


def load_adapter(path: Path) -> Adapter:
    """Load an adapter, and pass on what its user should know."""
    from longseal.scales import Adapter

    loaded = Adapter.load(path)
    if loaded.note is not None:
        console.print(f"note: {loaded.note}")
    return loaded


def chosen_tasks(config: TaskSettings, names: Sequence[str]) -> tuple[Task, ...]:
    """The tasks of these names, and a line for each that is left out."""
    from longseal.tasks import Material, choose

    chosen = choose(names, Material(config.data, config.haystack))
    for name, reason in chosen.left_out.items():
        console.print(f"left out: {name} ({reason})")
    return chosen.tasks


def print_found(found: Evaluation, comparisons: Sequence[Comparison] = ()) -> None:
    """What an evaluation found, what was left out of it, and what is better than what."""
    from longseal.terminal import accuracy_table, comparison_lines

    console.print(accuracy_table((*found.accuracy(), *found.mean())))
    for task, count in found.excluded.items():
        console.print(f"{task}: {count} questions do not fit the model's window and were left out")
    for line in comparison_lines(comparisons):
        console.print(line, soft_wrap=True, highlight=False)


def default_folder(model: str | None, name: str) -> Path:
    """Where a job's results go when the user names no folder."""
    stem = Path(model).name.removesuffix(".gguf") if model else "SmolLM2-135M-Instruct"
    task = Path(name).stem if ".jsonl" in name else name.replace("/", "-")
    return Path("runs") / f"{stem}-{task}"
