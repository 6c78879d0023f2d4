"""One progress bar for every kind of long work, with the time left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

Bar = Progress


@contextmanager
def bars(console: Console | None = None) -> Iterator[Bar]:
    """Show bars on a terminal; without a console nothing is shown."""
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(compact=True),
        TextColumn("left"),
        console=console or Console(quiet=True),
        speed_estimate_period=600,
    )
    with progress:
        yield progress
