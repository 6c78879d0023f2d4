"""Commands to functions: each parses, calls the library and says what came of it."""

from longseal.cli import adapter, fold, report, run, steps  # their commands register themselves
from longseal.cli.app import app
from longseal.cli.entry import main

__all__ = ["adapter", "app", "fold", "main", "report", "run", "steps"]
