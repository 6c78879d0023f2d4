"""`longseal score`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.table import Table

from longseal.cli.app import app, console

if TYPE_CHECKING:
    from longseal.tasks.scoring import Mean, Row


@app.command
def score(
    task: str,
    file: Path,
    /,
    *,
    by_depth: Annotated[bool, Parameter(help="A row a depth, too.", negative=())] = False,
    data: Annotated[
        tuple[Path, ...],
        Parameter(help="File that the task cannot do without; may be repeated.", negative=()),
    ] = (),
    as_json: Annotated[
        bool,
        Parameter(
            name="--json", help="Print a JSON object a case, then one of the means.", negative=()
        ),
    ] = False,
) -> None:
    """Score what any other engine predicted.

    ```
    longseal tasks sample lines --model my-model --length 8k -n 50 --json > samples.jsonl
    # add "prediction" to each line, with the engine of your choice
    longseal score lines predictions.jsonl
    longseal score lines 200_response.txt           # a file as LongEval publishes them
    ```

    Predictions are counted by the length that was asked for (`wanted_length`), or else by `length`.

    Parameters
    ----------
    task
        Task by whose rules it is scored; `longseal tasks` lists them.
    file
        JSON lines with `prediction`, `answers` and what else `longseal tasks sample --json` gave.
    """
    from longseal.tasks import task as find
    from longseal.tasks.scoring import score_file, summary

    wanted = find(task, data=data)
    cases = score_file(file, wanted)
    rows = summary(cases, by_depth=by_depth)
    if as_json:
        for case in cases:
            sys.stdout.write(json.dumps(asdict(case)) + "\n")
        means = {"task": wanted.name, "metric": wanted.metric, "summary": [*map(asdict, rows)]}
        sys.stdout.write(json.dumps(means) + "\n")
        return
    console.print(_table(wanted.name, wanted.metric, rows))


def _table(name: str, metric: str, rows: Sequence[Row]) -> Table:
    """One row a group, length and depth; the score that the task is judged by comes first."""
    keys = [
        k
        for k in ("group", "length", "depth")
        if any(getattr(r, k) not in ("", None) for r in rows)
    ]
    scores = sorted({score for row in rows for score in row.scores}, key=lambda s: (s != metric, s))
    title = f"{name}: mean score (95% interval); the task is judged by {metric}"
    table = Table(*keys, "n", *scores, title=title, title_justify="left")
    for row in rows:
        cells = [_cell(getattr(row, key)) for key in keys]
        table.add_row(*cells, str(row.total), *(_mean(row.scores.get(score)) for score in scores))
    return table


def _cell(value: str | int | float | None) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return "" if value is None else str(value)


def _mean(mean: Mean | None) -> str:
    return "" if mean is None else f"{mean.value:.2f} ({mean.low:.2f}-{mean.high:.2f})"
