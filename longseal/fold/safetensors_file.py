"""A safetensors file, part by part: read some rows, write them over in place, leave the rest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from longseal.errors import LongsealError

#: What longseal multiplies in; other types (8-bit, packed) belong to quantised weights.
_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}


@dataclass(frozen=True)
class Entry:
    """Where a tensor lies in its file.

    Attributes:
        dtype: None where longseal cannot multiply in it.
        start, stop: bytes from the beginning of the file.
    """

    dtype: torch.dtype | None
    shape: tuple[int, ...]
    start: int
    stop: int


def entries(path: Path) -> Mapping[str, Entry]:
    """The tensors of a file, by name, from its header alone.

    The format: a little-endian uint64, a JSON header of that many bytes, then the tensors' bytes,
    one tensor right after another (https://huggingface.co/docs/safetensors).

    Raises:
        LongsealError: the file is missing, is no safetensors file, is truncated, or its header
            puts tensors where they cannot be.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > size - 8:
                raise ValueError("its header is longer than the file")
            header = json.loads(file.read(length), object_pairs_hook=_without_repeats)
        header.pop("__metadata__", None)
        found = {name: _entry(name, item, 8 + length) for name, item in header.items()}
        _check_layout(found, 8 + length, size)
    except OSError as error:
        raise LongsealError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise LongsealError(
            f"{path} is not a whole safetensors file: {error}. Fetch or save it again"
        ) from error
    return found


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"its header names {max(names, key=names.count)} twice")
    return found


def _entry(name: str, item: Mapping[str, Any], data: int) -> Entry:
    start, stop = map(int, item["data_offsets"])
    dtype, shape = _DTYPES.get(item["dtype"]), tuple(map(int, item["shape"]))
    if dtype is not None and stop - start != prod(shape) * dtype.itemsize:
        raise ValueError(f"{name} has {stop - start} bytes, which is not its shape's size")
    return Entry(dtype, shape, data + start, data + stop)


def _check_layout(found: Mapping[str, Entry], data: int, size: int) -> None:
    """Refuse what safetensors' own reader refuses: overlaps, gaps, bytes that are not there."""
    end, before = data, "the header"
    for name, entry in sorted(found.items(), key=lambda item: (item[1].start, item[1].stop)):
        if entry.stop < entry.start or entry.start < end:
            raise ValueError(f"{name} overlaps {before}")
        if entry.start > end:
            raise ValueError(f"there is a gap before {name}")
        if entry.stop > size:
            raise ValueError(f"it ends before {name} does")
        end, before = entry.stop, name
    if end != size:
        raise ValueError(f"{size - end} bytes at its end belong to no tensor")


def read_rows(path: Path, entry: Entry, rows: range) -> Tensor:
    """Some consecutive rows of a tensor: `(len(rows), columns)`, in its own dtype."""
    assert entry.dtype is not None
    with path.open("rb") as file:
        file.seek(_row_start(entry, rows))
        data = bytearray(file.read(len(rows) * _row_size(entry)))
    return torch.frombuffer(data, dtype=entry.dtype).view(len(rows), -1)


def write_rows(path: Path, entry: Entry, rows: range, tensor: Tensor) -> None:
    """Put `tensor`, as `read_rows` gave it, in the place of the rows that are there."""
    assert (tensor.dtype, tensor.numel()) == (entry.dtype, len(rows) * prod(entry.shape[1:]))
    with path.open("r+b") as file:
        file.seek(_row_start(entry, rows))
        file.write(tensor.contiguous().view(-1).view(torch.uint8).numpy().data)


def _row_start(entry: Entry, rows: range) -> int:
    return entry.start + rows.start * _row_size(entry)


def _row_size(entry: Entry) -> int:
    assert entry.dtype is not None
    return prod(entry.shape[1:]) * entry.dtype.itemsize


def read_values(path: Path, entry: Entry, places: list[int]) -> list[float]:
    """Single values of one tensor, by their place in it flattened."""
    assert entry.dtype is not None
    values = []
    with path.open("rb") as file:
        for place in places:
            file.seek(entry.start + place * entry.dtype.itemsize)
            data = bytearray(file.read(entry.dtype.itemsize))
            values.append(float(torch.frombuffer(data, dtype=entry.dtype)[0]))
    return values
