"""The command line's entry: runs a command and turns what goes wrong into one line."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence

from cyclopts import CycloptsError
from pydantic import ValidationError
from rich.console import Console

from longseal.cli.app import app
from longseal.errors import LongsealError


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line: errors of the user are one line and exit code 2, never a traceback."""
    command = sys.argv[1:] if arguments is None else list(arguments)
    try:
        app(command, exit_on_error=False, print_error=False)
    except (LongsealError, CycloptsError) as error:
        _fail(_one_line(error), 2)
    except KeyboardInterrupt:
        kept = command[:1] in (["run"], ["tune"]) or (
            command[:1] == ["evaluate"] and any(c.startswith("--out") for c in command)
        )
        words = [c for c in command if c not in ("--overwrite", "--resume")] + ["--resume"] * kept
        _fail(f"interrupted. To go on: longseal {shlex.join(words)}", 130)
    except Exception as error:
        if os.environ.get("LONGSEAL_DEBUG"):
            raise
        _fail(
            f"unexpected {type(error).__name__}: {_one_line(error)} "
            "(LONGSEAL_DEBUG=1 shows where; please report it)",
            1,
        )


def _fail(message: str, code: int) -> None:
    Console(stderr=True).print(
        f"longseal: {message}", soft_wrap=True, highlight=False, markup=False
    )
    sys.exit(code)


def _one_line(error: BaseException) -> str:
    cause = error.__cause__
    if isinstance(cause, ValidationError):
        first = cause.errors()[0]
        flag = str(first["loc"][0]).replace("_", "-") if first["loc"] else ""
        return f"--{flag}: {first['msg'].removeprefix('Value error, ')}"
    return " ".join(str(error).split())
