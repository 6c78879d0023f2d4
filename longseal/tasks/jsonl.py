"""JSON lines that a user names, read with the line said where something is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from longseal.errors import LongsealError

_Parsed = TypeVar("_Parsed")


def read_text(path: Path) -> str:
    """Text of a UTF-8 file; a byte order mark is dropped.

    Raises:
        LongsealError: it cannot be read, or is in another encoding.
    """
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise LongsealError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise LongsealError(
            f"{path} is not UTF-8 (byte {error.start}): {_encoding(error.object)}. Convert it with "
            f"iconv -f THAT-ENCODING -t UTF-8"
        ) from error


def jsonl(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a file of JSON lines, each with the number of its line (from 1).

    Raises:
        LongsealError: the file cannot be read, a line is no JSON object or names a key twice, or
            there is none.
    """
    number = 0
    found = False
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if not line.strip():
            continue
        found = True
        try:
            row = json.loads(line, object_pairs_hook=_no_twins)
            if "\\u" in line:  # an escape may stand for half a character, which no file can hold
                json.dumps(row, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = ascii(error.object[error.start])
            raise LongsealError(f"{path}, line {number}: {half} is half a character") from error
        except RecursionError as error:
            raise LongsealError(f"{path}, line {number}: nested too deep") from error
        except ValueError as error:
            raise LongsealError(f"{path}, line {number}: not JSON: {error}") from error
        if not isinstance(row, dict):
            raise LongsealError(f"{path}, line {number}: not a JSON object")
        yield number, row
    if not found:
        raise LongsealError(f"{path} is empty: it should hold a JSON object on each line")


def parse(
    path: Path, number: int, row: Mapping[str, Any], how: Callable[[Mapping[str, Any]], _Parsed]
) -> _Parsed:
    """What `how` makes of a row; whatever is wrong with it is said with its line.

    Raises:
        LongsealError: a field is missing or is not what it should be.
    """
    try:
        return how(row)
    except KeyError as error:
        there = ", ".join(row) or "none"
        raise LongsealError(
            f"{path}, line {number}: no field {error} (fields there: {there})"
        ) from error
    except (ValueError, TypeError, LongsealError) as error:
        raise LongsealError(f"{path}, line {number}: {error}") from error


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        keys = [key for key, _ in pairs]
        twin = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twin!r} stands there twice")
    return made


def _encoding(data: bytes) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "it looks like UTF-16"
    return "it may be Latin-1, Windows-1252 or another older encoding"
