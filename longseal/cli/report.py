"""`longseal report`."""

from __future__ import annotations

from pathlib import Path

from longseal.cli.app import app, console


@app.command
def report(folder: Path, /) -> None:
    """Make one HTML page, which opens offline, of a run folder.

    ```
    longseal report runs/lines
    ```

    Parameters
    ----------
    folder
        Run folder of `longseal run`, `evaluate` or `tune`.
    """
    from longseal.report import report as write
    from longseal.terminal import print_next

    print_next(console, report=f"{write(folder)} (open it in a browser)")
