"""Files that are whole or absent: written beside and renamed, or appended line by line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from longseal.errors import LongsealError


@contextmanager
def clear_errors(path: Path) -> Iterator[None]:
    """Say in one line what the system refused: a full disk, a read-only folder."""
    try:
        yield
    except shutil.Error as error:  # what copytree makes of a full disk: a list of all that failed
        raise LongsealError(f"{path} cannot be written: {error.args[0][0][2]}") from error
    except OSError as error:
        raise LongsealError(f"{path} cannot be written: {error.strerror or error}") from error
    except SafetensorError as error:  # what safetensors makes of it
        raise LongsealError(f"{path} cannot be written: {error}") from error


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """A place beside `path` to write to; it becomes `path` when the block ends well."""
    partial = path.with_name(f".{path.name}.partial")
    with clear_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield partial
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """An empty folder beside `path`; it takes `path`'s place when the block ends well.

    Raises:
        LongsealError: the system refuses, e.g. the disk is full.
    """
    partial = path.with_name(f".{path.name}.partial")
    with clear_errors(path):
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        try:
            yield partial
            if path.exists():
                shutil.rmtree(path)
            partial.replace(path)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def write_json(path: Path, value: Any) -> None:
    """Write indented JSON, whole or not at all."""
    with new_file(path) as partial:
        partial.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", "utf-8")


def read_json(path: Path) -> Any:
    """Read JSON.

    Raises:
        LongsealError: the file is missing or is no JSON.
    """
    try:
        return json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise LongsealError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise LongsealError(f"{path} is not JSON: {error}") from error


class Log:
    """Results as JSON lines, appended as they come and flushed, so that a killed run loses none.

    A last line that was cut off by a kill is dropped when the log is opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.exists():
            with clear_errors(path), path.open("r+b") as file:
                file.truncate(file.read().rfind(b"\n") + 1)

    def append(self, record: Mapping[str, Any]) -> None:
        """Add one line."""
        with clear_errors(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
            file.flush()

    def read(self, **wanted: Any) -> list[dict[str, Any]]:
        """The records whose fields have the `wanted` values, in order."""
        if not self.path.exists():
            return []
        with self.path.open(
            encoding="utf-8", newline="\n"
        ) as file:  # not splitlines(): U+2028 ends no record
            records = [json.loads(line) for line in file]
        return [r for r in records if all(r.get(key) == value for key, value in wanted.items())]
