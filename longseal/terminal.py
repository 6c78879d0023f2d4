"""What a person reads in the terminal: tables, and what to do next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from longseal.estimate import Cost
from longseal.evaluation.compare import Comparison, sentence, where
from longseal.evaluation.results import Accuracy, label
from longseal.scales.summary import Summary


def accuracy_table(accuracies: Sequence[Accuracy]) -> Table:
    """One row a task and length, one column a variant: mean score (95% interval).

    The task is named where there are several.
    """
    variants = list(dict.fromkeys(a.variant for a in accuracies))
    cells = {(a.task, a.group, a.length, a.variant): a for a in accuracies}
    rows = list(dict.fromkeys((a.task, a.group, a.length) for a in accuracies))
    several = len({(task, group) for task, group, _ in rows}) > 1
    columns = (*(["task"] if several else []), "length", "questions", *variants)
    table = Table(*columns, title="accuracy (95% interval)", title_justify="left")
    for task, group, length in rows:
        found = [cells.get((task, group, length, variant)) for variant in variants]
        asked = max(accuracy.total for accuracy in found if accuracy is not None)
        name = [escape(label(task, group))] if several else []
        table.add_row(*name, f"{length:,}", str(asked), *map(_cell, found))
    return table


def _cell(accuracy: Accuracy | None) -> str:
    if accuracy is None:
        return ""
    return f"{accuracy.value:.2f} ({accuracy.low:.2f}-{accuracy.high:.2f})"


def comparison_lines(comparisons: Sequence[Comparison]) -> list[str]:
    """One line a comparison: where, and whether the difference is real."""
    return [f"{where(comparison)}: {sentence(comparison)}" for comparison in comparisons]


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


def adapter_table(found: Summary, title: str) -> Table:
    """What an adapter is, one row a fact."""
    table = Table(title=escape(title), title_justify="left", show_header=False)
    table.add_row("kind", f"{found.kind}, {found.count:,} numbers")
    table.add_row("base", escape(found.base) or "not known")
    table.add_row("fingerprint of the base", "yes" if found.fingerprint else "none")
    table.add_row("written by", found.written_by)
    heads = "heads not known" if found.heads is None else f"{_counts(found.heads)} heads each"
    table.add_row("layers", f"{found.layers}, {heads}")
    spread = f"{found.smallest:.3f} to {found.largest:.3f}, mean {found.mean:.3f}"
    table.add_row("scales", spread)
    for name, value in found.made.items():
        table.add_row(name.replace("_", " "), _words(value))
    for part in found.parts:
        others = {key: value for key, value in part.items() if key not in ("strength", "versions")}
        table.add_row(f"part at strength {part['strength']:g}", _words(others))
    return table


def changes_table(found: Summary) -> Table:
    """The heads that an adapter changes most."""
    columns = ("layer", "head", "mean scale", "change")
    title = "most changed heads" if found.heads is not None else "most changed layers"
    table = Table(*columns, title=f"{title} (rms of scale - 1)", title_justify="left")
    for change in found.most_changed:
        head = "" if change.head is None else str(change.head)
        table.add_row(str(change.layer), head, f"{change.scale:.3f}", f"{change.change:.3f}")
    return table


def _counts(heads: Sequence[int]) -> str:
    return " or ".join(map(str, sorted(set(heads))))


def _words(value: object) -> str:
    if isinstance(value, Mapping):
        return escape(", ".join(f"{name} {item}" for name, item in value.items()))
    return escape(str(value))


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
