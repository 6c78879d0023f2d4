"""Commands to functions: each parses, calls the library and says what came of it."""

from longseal.cli import (  # their commands register themselves
    adapter,
    evaluate,
    extend,
    fold,
    generate,
    mmlu,
    probe,
    report,
    run,
    score,
    tasks,
    tune,
)
from longseal.cli.app import app
from longseal.cli.entry import main

__all__ = [
    "adapter",
    "app",
    "evaluate",
    "extend",
    "fold",
    "generate",
    "main",
    "mmlu",
    "probe",
    "report",
    "run",
    "score",
    "tasks",
    "tune",
]
