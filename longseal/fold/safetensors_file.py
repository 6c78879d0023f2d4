"""A safetensors file, tensor by tensor: read one, write one over in place, leave the rest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from longseal.errors import LongsealError

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
        dtype: None where longseal cannot multiply in it (8-bit, packed).
        start, stop: bytes from the beginning of the file.
    """

    dtype: torch.dtype | None
    shape: tuple[int, ...]
    start: int
    stop: int


def entries(path: Path) -> Mapping[str, Entry]:
    """The tensors of a file, by name.

    The format: a little-endian uint64, a JSON header of that many bytes, then the tensors' bytes.

    Raises:
        LongsealError: the file is missing, is no safetensors file or is truncated.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > size:
                raise ValueError("its header is longer than the file")
            header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        found = {name: _entry(item, 8 + length) for name, item in header.items()}
        if any(entry.stop > size for entry in found.values()):
            raise ValueError("it ends before its tensors do")
    except OSError as error:
        raise LongsealError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise LongsealError(f"{path} is not a whole safetensors file: {error}") from error
    return found


def _entry(item: Mapping[str, object], data: int) -> Entry:
    start, stop = item["data_offsets"]  # type: ignore[misc]  # JSON; a wrong type is caught above
    return Entry(_DTYPES.get(str(item["dtype"])), tuple(item["shape"]), data + start, data + stop)  # type: ignore[arg-type, has-type]


def read(path: Path, entry: Entry) -> Tensor:
    """One tensor, in its own dtype and shape."""
    assert entry.dtype is not None
    with path.open("rb") as file:
        file.seek(entry.start)
        data = bytearray(file.read(entry.stop - entry.start))
    return torch.frombuffer(data, dtype=entry.dtype).reshape(entry.shape)


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


def overwrite(path: Path, entry: Entry, tensor: Tensor) -> None:
    """Put `tensor`, of the entry's dtype and shape, in the place of the one that is there."""
    assert (tensor.dtype, tensor.shape) == (entry.dtype, entry.shape)
    data = tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
    with path.open("r+b") as file:
        file.seek(entry.start)
        file.write(data)
