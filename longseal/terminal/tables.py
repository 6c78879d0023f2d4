"""What a person reads in the terminal: tables, and what to do next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from longseal import record as tuning
from longseal.evaluation.compare import SURE, Comparison, sentence, where
from longseal.evaluation.grid import grid
from longseal.evaluation.matrix import Cell, Matrix
from longseal.evaluation.results import Accuracy

if TYPE_CHECKING:
    from rich.console import Console

    from longseal.estimate import Cost
    from longseal.scales.summary import Summary
    from longseal.tasks.scoring import Mean, Row


def accuracy_table(accuracies: Sequence[Accuracy]) -> Table:
    """One row a task and length, one column a variant: mean score (95% interval).

    The task is named where there are several.
    """
    found = grid(accuracies)
    columns = (*(["task"] if found.several else []), "length", "questions", *found.variants)
    table = Table(*map(escape, columns), title="accuracy (95% interval)", title_justify="left")
    for row in found.rows:
        name = [escape(row.name)] if found.several else []
        scores = map(_mean, row.accuracies)
        table.add_row(*name, f"{row.length:,}", str(row.questions), *scores)
    return table


def score_table(task: str, metric: str, rows: Sequence[Row]) -> Table:
    """One row a group, length and depth; the score that the task is judged by comes first."""
    keys = [
        key
        for key in ("group", "length", "depth")
        if any(getattr(row, key) not in ("", None) for row in rows)
    ]
    scores = sorted({score for row in rows for score in row.scores}, key=lambda s: (s != metric, s))
    title = f"{task}: mean score (95% interval); the task is judged by {metric}"
    table = Table(*keys, "n", *scores, title=title, title_justify="left")
    for row in rows:
        cells = [_plain(getattr(row, key)) for key in keys]
        table.add_row(*cells, str(row.total), *(_mean(row.scores.get(score)) for score in scores))
    return table


def matrix_tables(found: Sequence[Matrix]) -> list[Table]:
    """One row a model, one column a task: mean score, and how far it is from the base's."""
    tables = []
    for matrix in found:
        at = "" if matrix.length is None else f" at {matrix.length:,} tokens"
        table = Table(
            "",
            *map(escape, matrix.columns),
            min_width=66,  # so that title and caption stay in one line
            title=f"mean score{at}, and its difference from the base's",
            title_justify="left",
            caption=f"*: tuned on that task. Coloured: p < {SURE} (of its own, not corrected)",
            caption_justify="left",
        )
        for variant, row in zip(matrix.variants, matrix.rows, strict=True):
            table.add_row(escape(variant), *map(_matrix_cell, row))
        tables.append(table)
    return tables


def _matrix_cell(cell: Cell | None) -> str:
    if cell is None:
        return ""
    text = f"{cell.accuracy.value:.2f}"
    if cell.difference is None:
        return text
    text += f" {cell.difference:+.2f}" + "*" * cell.learned
    real = cell.p is not None and cell.p < SURE
    return f"[{'green' if cell.difference > 0 else 'red'}]{text}[/]" if real else text


def comparison_lines(comparisons: Sequence[Comparison]) -> list[str]:
    """One line a comparison: where, and whether the difference is real.

    Of several models only what chance gives rarely, and each one's last comparison, that of all
    questions together; what to make of so many p is said.
    """
    last = {c.after: c for c in comparisons}
    if len(last) <= 1:
        return [f"{where(c)}: {sentence(c)}" for c in comparisons]
    told = [c for c in comparisons if c is last[c.after] or c.p < SURE]
    rest = len(comparisons) - len(told)
    return [
        *(f"{c.after}, {where(c)}: {sentence(c)}" for c in told),
        f"{len(comparisons)} comparisons, {rest} not shown that could be chance (p of {SURE} and "
        f"more). Each p is its own: of twenty without any difference one falls below {SURE}",
    ]


def _mean(found: Accuracy | Mean | None) -> str:
    return "" if found is None else f"{found.value:.2f} ({found.low:.2f}-{found.high:.2f})"


def _plain(value: str | int | float | None) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return "" if value is None else str(value)


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
    """What tuning chose, in a sentence, and what was gained and paid, in another."""
    chosen, said = record["chosen"], record.get("sentence")
    base = f"{record['held_out_base']:.2f}" if "held_out_base" in record else None
    if chosen["step"] == 0:
        line = "chosen: unchanged"
        if not said:
            line += (
                f". The base got {base} of the held-out questions right and nothing tried was "
                "better, so the adapter changes nothing"
            )
    else:
        line = f"chosen: step {chosen['step']} of {record['steps']} at strength "
        line += f"{chosen['strength']:g}"
        if not said:
            line += f", {chosen['accuracy']:.2f} of the held-out questions right (base: {base})"
    if said:
        line += f". {said}"
    stopped = record.get("stopped")
    return line if stopped is None else f"{line.removesuffix('.')}. Stopped early: {stopped}"


def held_out_table(record: Mapping[str, Any]) -> Table | None:
    """The wanted tasks' held-out scores before and after; None where they are not known."""
    wanted = [row for row in tuning.formats(record) if row.wanted]
    return _formats("held-out questions of the wanted tasks", wanted) if wanted else None


def guard_table(record: Mapping[str, Any]) -> Table | None:
    """What the model could do before, before and after; None where nobody looked."""
    watched = [row for row in tuning.formats(record) if not row.wanted]
    read = tuning.texts(record)
    if not watched and not read:
        return None
    bound = (record.get("guard") or {}).get("bound")
    limit = "no bound" if bound is None else f"bound: {bound:g} points, {bound:g}% perplexity"
    table = _formats(f"what else it can do ({limit})", watched)
    for text in read:
        table.add_row(
            escape(f"{text.name}, perplexity"),
            f"{text.base:.2f}",
            f"{text.chosen:.2f}",
            f"{100 * text.change:+.1f}%",
            f"KL {text.kl:.4f}, {100 * text.agreement:.1f}% of first choices the same",
        )
    return table


def _formats(title: str, rows: Sequence[tuning.Format]) -> Table:
    table = Table("", "base", "chosen", "change", "", title=title, title_justify="left")
    for row in rows:
        reworded = f"{row.reworded} of {row.questions} only in other words" if row.reworded else ""
        change = f"{100 * (row.chosen - row.base):+.1f} points"
        table.add_row(escape(row.name), f"{row.base:.2f}", f"{row.chosen:.2f}", change, reworded)
    return table


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
