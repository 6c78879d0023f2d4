"""`longseal adapter`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from longseal.cli.app import app, console
from longseal.errors import LongsealError

if TYPE_CHECKING:
    from longseal.lora.summary import LowRankSummary
    from longseal.scales import Adapter

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
    """Print what an adapter is: its base, what it changes, how it was made.

    ```
    longseal adapter show runs/lines/adapter
    longseal adapter show runs/lines/adapter --json
    ```

    Parameters
    ----------
    path
        Folder of the adapter.
    """
    from longseal.lora import LoraAdapter, read_adapter
    from longseal.lora.summary import low_rank_summary
    from longseal.scales.summary import summary
    from longseal.terminal import adapter_table, changes_table

    loaded = read_adapter(path)
    if isinstance(loaded, LoraAdapter):
        _show_low_rank(low_rank_summary(loaded), str(path), as_json=as_json)
        return
    found = summary(loaded)
    if as_json:
        console.print_json(json.dumps(asdict(found)))
        return
    console.print(adapter_table(found, str(path)))
    console.print(changes_table(found))
    if loaded.note is not None:
        console.print(f"note: {loaded.note}")


def _show_low_rank(found: LowRankSummary, title: str, *, as_json: bool) -> None:
    from rich.markup import escape
    from rich.table import Table

    if as_json:
        console.print_json(json.dumps(asdict(found)))
        return
    table = Table(title=escape(title), title_justify="left", show_header=False)
    table.add_row("kind", f"{found.kind}, {found.count:,} numbers")
    table.add_row("base", escape(found.base))
    table.add_row("rank and alpha", f"{found.rank} and {found.alpha}")
    table.add_row("projections", f"{found.modules}: queries, keys, values and outputs")
    for name, value in found.made.items():
        facts = value.items() if isinstance(value, dict) else ()
        text = ", ".join(f"{key} {item}" for key, item in facts) or str(value)
        table.add_row(name.replace("_", " "), escape(text))
    console.print(table)
    title = "most changed projections (norm of the update)"
    changes = Table("projection", "change", title=title, title_justify="left")
    for change in found.most_changed:
        changes.add_row(escape(change.module), f"{change.change:.3f}")
    console.print(changes)


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

    parts = [(_scales(folder), strength) for folder, strength in map(_part, adapters)]
    made = Adapter.product(parts)
    made.save(out)
    if made.note is not None:
        console.print(f"note: {made.note}")
    print_next(console, adapter=out, next=f"longseal adapter show {out}")


def _scales(folder: Path) -> Adapter:
    """An adapter that can be multiplied."""
    from longseal.lora import LoraAdapter, read_adapter

    loaded = read_adapter(folder)
    if isinstance(loaded, LoraAdapter):
        raise LongsealError(
            f"{folder} is a {loaded.kind} adapter: only scales (head, channel) can be multiplied"
        )
    return loaded


def _part(text: str) -> tuple[Path, float]:
    """A folder and its strength: `folder` or `folder:strength`."""
    folder, colon, strength = text.rpartition(":")
    if not colon or not folder or Path(text).exists():
        return Path(text), 1.0
    try:
        return Path(folder), float(strength)
    except ValueError:  # the colon belongs to the path
        return Path(text), 1.0
