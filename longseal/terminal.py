"""What a person reads in the terminal: tables, and what to do next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.table import Table

from longseal.estimate import Cost
from longseal.evaluation import Accuracy


def accuracy_table(accuracies: Sequence[Accuracy]) -> Table:
    """One row a length, one column a variant: share of right answers (95% interval)."""
    variants = list(dict.fromkeys(a.variant for a in accuracies))
    columns = ("length", "questions", *variants)
    table = Table(*columns, title="accuracy (95% interval)", title_justify="left")
    cells = {(a.length, a.variant): a for a in accuracies}
    for length in dict.fromkeys(a.length for a in accuracies):
        found = [cells.get((length, variant)) for variant in variants]
        asked = max(accuracy.total for accuracy in found if accuracy is not None)
        table.add_row(f"{length:,}", str(asked), *map(_cell, found))
    return table


def _cell(accuracy: Accuracy | None) -> str:
    if accuracy is None:
        return ""
    return f"{accuracy.value:.2f} ({accuracy.low:.2f}-{accuracy.high:.2f})"


def cost_table(costs: Sequence[Cost]) -> Table:
    """One row a stage, and the whole."""
    columns = ("stage", "tokens", "steps", "time, about", "memory, about")
    table = Table(*columns, title="what it would cost", title_justify="left")
    for cost in costs:
        table.add_row(
            cost.stage,
            f"{cost.tokens:,}",
            str(cost.steps or ""),
            _time(cost.seconds),
            _size(cost.memory),
        )
    table.add_row(
        "in all",
        f"{sum(c.tokens for c in costs):,}",
        str(sum(c.steps for c in costs) or ""),
        _time(sum(c.seconds for c in costs)),
        _size(max(c.memory for c in costs)),
    )
    return table


def chosen_line(record: Mapping[str, Any]) -> str:
    """What tuning chose, in a sentence."""
    chosen = record["chosen"]
    base = f"{record['held_out_base']:.2f}"
    if chosen["step"] == 0:
        line = (
            f"chosen: unchanged. The base got {base} of the held-out questions right and nothing "
            "tried was better, so the adapter changes nothing"
        )
    else:
        line = (
            f"chosen: step {chosen['step']} of {record['steps']} at strength "
            f"{chosen['strength']:g}, {chosen['accuracy']:.2f} of the held-out questions right "
            f"(base: {base})"
        )
    return line if record["stopped"] is None else f"{line}. Stopped early: {record['stopped']}"


def print_next(console: Console, **lines: object) -> None:
    """Where things lie and what to do next, a line each, unbroken so that it can be copied."""
    width = max(map(len, lines)) + 1
    for name, text in lines.items():
        label = name.replace("_", " ") + ":"
        console.print(f"[bold]{label:<{width}}[/] {text}", soft_wrap=True, highlight=False)


def _time(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


def _size(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
