"""What the tests of folding share."""

from __future__ import annotations

import json
from pathlib import Path

import tiny
from safetensors.torch import load_file
from torch import Tensor

from longseal import Adapter, LanguageModel


def adapter_of(model: LanguageModel, kind: str = "channel") -> Adapter:
    """An adapter whose scales all differ."""
    return Adapter.of(model, tiny.random_scales(model, kind), {"task": "lines"})


def read(path: Path) -> dict[str, Tensor]:
    """The tensors of a file, which may be written anew after: `load_file` only maps it."""
    return {name: tensor.clone() for name, tensor in load_file(path).items()}


def tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors of a checkpoint."""
    return {k: v for file in folder.glob("*.safetensors") for k, v in read(file).items()}


def tree(folder: Path) -> list[str]:
    """All that is in a folder, hidden files included."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def files(folder: Path) -> dict[str, bytes]:
    """The bytes of all files of a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def header(data: bytes) -> tuple[dict[str, dict[str, list[int]]], int]:
    """A safetensors file's header, and where its tensors begin."""
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), 8 + length
