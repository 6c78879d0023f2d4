"""Commands to functions: each parses, calls the library and says what came of it."""

from longseal.cli import (  # their commands register themselves
    adapter,
    fold,
    report,
    run,
    score,
    steps,
    tasks,
)
from longseal.cli.app import app
from longseal.cli.entry import main

__all__ = ["adapter", "app", "fold", "main", "report", "run", "score", "steps", "tasks"]
