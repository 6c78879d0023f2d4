"""Fold scales into a checkpoint as files: what does not change is copied byte for byte."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from longseal.errors import LongsealError
from longseal.files import read_json
from longseal.fold.safetensors_file import Entry, entries, overwrite, read, read_values
from longseal.models.fingerprint import check, places
from longseal.models.sites import Site
from longseal.scales import Adapter, Scales
from longseal.scales.adapter import RECORD

#: Weights in other formats would be left unfolded, so they are left behind.
OTHER_WEIGHTS = (
    "*.bin",
    "*.bin.index.json",
    "*.pt",
    "*.pth",
    "*.gguf",
    "*.onnx",
    "*.h5",
    "*.msgpack",
)
_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"


@dataclass(frozen=True)
class Tensors:
    """A checkpoint's tensors: in which file each lies, and where."""

    places: Mapping[str, tuple[Path, Entry]]

    @classmethod
    def of(cls, folder: Path) -> Tensors:
        """Read the index and the headers of a folder.

        Raises:
            LongsealError: there are no safetensors, or one of them is missing or truncated.
        """
        if (folder / _INDEX).is_file():
            files = sorted(set(read_json(folder / _INDEX)["weight_map"].values()))
        elif (folder / _SINGLE).is_file():
            files = [_SINGLE]
        else:
            raise LongsealError(
                f"{folder} has no {_SINGLE} and no {_INDEX}: convert the checkpoint to safetensors"
            )
        found = {
            name: (folder / file, entry)
            for file in files
            for name, entry in entries(folder / file).items()
        }
        return cls(found)

    def find(self, name: str) -> tuple[Path, Entry] | None:
        """The tensor that a model calls `name`, with or without a prefix of its own."""
        if name in self.places:
            return self.places[name]
        matches = [k for k in self.places if name.endswith(f".{k}") or k.endswith(f".{name}")]
        return self.places[matches[0]] if len(matches) == 1 else None

    def sampled(self, name: str) -> list[float] | None:
        """The values of a tensor that a fingerprint holds."""
        place = self.find(name)
        if place is None or place[1].dtype is None:
            return None
        count = int(torch.Size(place[1].shape).numel())
        return read_values(*place, places(count))


def check_base(folder: Path, adapter: Adapter) -> None:
    """Refuse a checkpoint that is not the adapter's base, or that cannot be folded into.

    Raises:
        LongsealError: it is folded already, quantised, damaged, or another base.
    """
    if (folder / RECORD).exists():
        raise LongsealError(f"{folder} is folded already: fold into the base it was made from")
    tensors = Tensors.of(folder)
    found = [_projection(tensors, site) for site in adapter.scales.sites]
    dtype = found[0][1].dtype
    assert dtype is not None
    check(adapter.base_fingerprint, dtype, tensors.sampled)


def copy_files(source: Path, target: Path) -> None:
    """Copy a checkpoint byte for byte; weights that would stay unfolded are left behind."""
    used = {path for path, _ in Tensors.of(source).places.values()}
    others = shutil.ignore_patterns(".*", *OTHER_WEIGHTS)

    def ignore(folder: str, names: list[str]) -> set[str]:
        stale = {n for n in names if n.endswith(".safetensors") and Path(folder, n) not in used}
        return stale | set(others(folder, names))

    shutil.copytree(
        source, target, dirs_exist_ok=True, ignore=ignore, copy_function=shutil.copyfile
    )


def multiply(folder: Path, scales: Scales) -> float:
    """Fold scales into a checkpoint in place, one tensor in memory at a time.

    Each output projection's input axis is multiplied in float32 and rounded once (design,
    decision 3); biases and all other bytes stay as they are.

    Returns:
        The largest rounding error of a folded weight, relative to the largest weight of its tensor.
    """
    tensors = Tensors.of(folder)
    errors = [0.0]
    for site in scales.sites:
        path, entry = _projection(tensors, site)
        folded, error = _multiplied(read(path, entry), scales.scale(site), site.input_axis)
        overwrite(path, entry, folded)
        errors.append(error)
    return max(errors)


def _projection(tensors: Tensors, site: Site) -> tuple[Path, Entry]:
    place = tensors.find(site.weight)
    if place is None:
        raise LongsealError(f"the checkpoint has no tensor {site.weight}, or more than one like it")
    _, entry = place
    if (
        entry.dtype is None
        or len(entry.shape) != 2
        or entry.shape[site.input_axis] != site.channels
    ):
        raise LongsealError(
            f"{site.weight} is quantised or has an unexpected shape {entry.shape}: "
            "fold into the full-precision base"
        )
    return place


def _multiplied(weight: Tensor, scale: Tensor, axis: int) -> tuple[Tensor, float]:
    """`weight`, `(out, in)` or `(in, out)`, times `scale` along `axis`, and the rounding error."""
    wide = torch.promote_types(weight.dtype, torch.float32)
    product = weight.to(wide) * (scale if axis == 1 else scale[:, None])
    folded = product.to(weight.dtype)
    error = (folded.to(wide) - product).abs().max() / product.abs().max().clamp_min(1e-30)
    return folded, float(error)
