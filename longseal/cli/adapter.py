"""`longseal adapter`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from longseal.cli.app import app, console

adapter = App(name="adapter", help="Look at adapters, and multiply them.")
app.command(adapter)


@adapter.command
def show(
    path: Path,
    /,
    *,
    as_json: Annotated[
        bool, Parameter(name="--json", help="Print it as JSON.", negative=())
    ] = False,
) -> None:
    """Print what an adapter is: its base, its scales, how it was made.

    ```
    longseal adapter show runs/lines/adapter
    longseal adapter show runs/lines/adapter --json
    ```

    Parameters
    ----------
    path
        Folder of the adapter.
    """
    from longseal.scales import Adapter
    from longseal.scales.summary import summary
    from longseal.terminal import adapter_table, changes_table

    loaded = Adapter.load(path)
    found = summary(loaded)
    if as_json:
        console.print_json(json.dumps(asdict(found)))
        return
    console.print(adapter_table(found, str(path)))
    console.print(changes_table(found))
    if loaded.note is not None:
        console.print(f"note: {loaded.note}")


@adapter.command
def combine(
    adapters: Annotated[list[str], Parameter(negative=())],
    /,
    *,
    out: Annotated[Path, Parameter(help="Folder to write; an adapter there is replaced.")],
) -> None:
    """Multiply adapters of one base into one, each at its strength.

    ```
    longseal adapter combine runs/lines/adapter runs/needle/adapter:0.5 --out both
    ```

    Parameters
    ----------
    adapters
        Folders of adapters; `:0.5` behind one takes half of its way from unchanged.
    """
    from longseal.scales import Adapter
    from longseal.terminal import print_next

    parts = [(Adapter.load(folder), strength) for folder, strength in map(_part, adapters)]
    made = Adapter.product(parts)
    made.save(out)
    if made.note is not None:
        console.print(f"note: {made.note}")
    print_next(console, adapter=out, next=f"longseal adapter show {out}")


def _part(text: str) -> tuple[Path, float]:
    """A folder and its strength: `folder` or `folder:strength`."""
    folder, colon, strength = text.rpartition(":")
    if not colon or not folder or Path(text).exists():
        return Path(text), 1.0
    try:
        return Path(folder), float(strength)
    except ValueError:  # the colon belongs to the path
        return Path(text), 1.0
