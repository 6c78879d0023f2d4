"""What a folded checkpoint says of the extension that its scales were learned under."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from longseal.config import Extension
from longseal.errors import LongsealError
from longseal.files import read_json
from longseal.record import RECORD, extension


@dataclass(frozen=True)
class Written:
    """An extension, the window that it gives, and whether the checkpoint's config has it in it."""

    extension: Extension
    window: int
    in_config: bool


def written_extension(source: str) -> Written | None:
    """What a folder says; None where it is no folded checkpoint, or was not extended.

    Raises:
        LongsealError: its record is damaged.
    """
    path = Path(source).expanduser() / RECORD
    if not path.is_file():
        return None
    record = read_json(path)
    folded = isinstance(record, dict) and record.get("folded")
    by = extension(record, path) if folded else None
    if by is None:
        return None
    reach = record.get("window")
    if not isinstance(reach, int):
        raise LongsealError(f"{path} is damaged: window: {reach!r} is no number of tokens")
    return Written(by, reach, bool(record.get("extend_in_config")))
