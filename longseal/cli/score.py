"""`longseal score`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from longseal.cli.app import app, console


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
    from longseal.terminal import score_table

    wanted = find(task, data=data)
    cases = score_file(file, wanted)
    rows = summary(cases, by_depth=by_depth)
    if as_json:
        for case in cases:
            sys.stdout.write(json.dumps(asdict(case)) + "\n")
        means = {"task": wanted.name, "metric": wanted.metric, "summary": [*map(asdict, rows)]}
        sys.stdout.write(json.dumps(means) + "\n")
        return
    console.print(score_table(wanted.name, wanted.metric, rows))
