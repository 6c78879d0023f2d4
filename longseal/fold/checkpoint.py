"""A checkpoint as files: which tensor lies where, and what is wrong with the folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

import torch

from longseal.errors import LongsealError
from longseal.files import read_json
from longseal.fold.safetensors_file import Entry, entries, read_values
from longseal.models.fingerprint import places
from longseal.record import RECORD

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
_SHOWN = 3  # names in a message


@dataclass(frozen=True)
class Checkpoint:
    """The tensors of a folder.

    Attributes:
        tensors: by name: the file, and where it lies in it.
        shards: the files' names.
    """

    folder: Path
    tensors: Mapping[str, tuple[Path, Entry]]
    shards: tuple[str, ...]

    @classmethod
    def of(cls, folder: Path, *, strays: bool = False) -> Checkpoint:
        """Read the index and the shards' headers.

        Args:
            strays: let safetensors pass that are not the checkpoint's; they are left behind.

        Raises:
            LongsealError: it is no safetensors checkpoint, is folded already, a shard is missing or
                damaged, the index and the shards do not agree, or there is a second set of weights.
        """
        if not (folder / "config.json").is_file():
            raise LongsealError(f"{folder} is no model: the folder has no config.json")
        _refuse_folded(folder)
        named = weight_map(folder)
        shards = tuple(sorted(set(named.values()))) if named else (SINGLE,)
        if not strays:
            _refuse_strays(folder, shards)
        tensors: dict[str, tuple[Path, Entry]] = {}
        for shard in shards:
            for name, entry in entries(folder / shard).items():
                if name in tensors:
                    raise LongsealError(
                        f"{folder} holds {name} twice, in {tensors[name][0].name} and in {shard}: "
                        "which one counts cannot be told. Save the checkpoint again"
                    )
                tensors[name] = folder / shard, entry
        for name, shard in named.items():
            if name not in tensors or tensors[name][0] != folder / shard:
                raise LongsealError(
                    f"{folder / INDEX} says that {name} is in {shard}, which does not hold it: "
                    "fetch or save the checkpoint again"
                )
        return cls(folder, tensors, shards)

    @property
    def quantised(self) -> str:
        """What the config says of quantisation, to end a message with; empty where nothing."""
        config = read_json(self.folder / "config.json")
        settings = config.get("quantization_config") if isinstance(config, dict) else None
        if not isinstance(settings, dict):
            return ""
        method = settings.get("quant_method", "a method that it does not name")
        return f"the checkpoint is quantised ({method}), so fold into its full-precision base"

    def sampled(self, key: str, rows: range | None = None) -> list[float] | None:
        """The values that a fingerprint holds of a tensor, or of the parameter in its `rows`.

        None where they are no plain floats, or where there are none.
        """
        path, entry = self.tensors[key]
        columns = prod(entry.shape[1:])
        part = range(entry.shape[0] if entry.shape else 1) if rows is None else rows
        if entry.dtype is None or not part or not columns:
            return None
        if rows is not None and rows.stop > entry.shape[0]:
            return None
        shift = part.start * columns
        return read_values(path, entry, [shift + place for place in places(len(part) * columns)])

    def dtype(self, key: str) -> torch.dtype | None:
        """Dtype of a tensor; None where longseal cannot multiply in it."""
        return self.tensors[key][1].dtype


def _refuse_folded(folder: Path) -> None:
    if not (folder / RECORD).is_file():
        return
    record = read_json(folder / RECORD)
    if isinstance(record, dict) and record.get("folded"):
        base = record.get("base")
        raise LongsealError(f"{folder} is folded already: fold into its base ({base})")
    raise LongsealError(f"{folder} holds a {RECORD} that is no checkpoint's: move it away")


def weight_map(folder: Path) -> dict[str, str]:
    """In which shard each tensor should be; empty where there is only one file.

    Raises:
        LongsealError: there is neither an index nor that file, or the index is damaged.
    """
    if not (folder / INDEX).is_file():
        if (folder / SINGLE).is_file():
            return {}
        raise LongsealError(
            f"{folder} has no {SINGLE} and no {INDEX}: convert the checkpoint to safetensors"
        )
    index = read_json(folder / INDEX)
    named = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(named, dict) or not named:
        raise LongsealError(f"{folder / INDEX} is damaged: it has no weight_map")
    for shard in named.values():
        if not isinstance(shard, str) or Path(shard).name != shard or shard.startswith("."):
            raise LongsealError(
                f"{folder / INDEX} is damaged: {shard!r} is not the name of a file beside it"
            )
    return named


def _refuse_strays(folder: Path, shards: tuple[str, ...]) -> None:
    """A second set would stay unfolded, and some engines prefer it."""
    strays = sorted({path.name for path in folder.glob("*.safetensors")} - set(shards))
    strays = [name for name in strays if not name.startswith(".")]
    if strays:
        names = ", ".join(strays[:_SHOWN])
        more = f" and {len(strays) - _SHOWN} more" if len(strays) > _SHOWN else ""
        raise LongsealError(
            f"{folder} holds weights that are not part of its checkpoint and would stay unfolded: "
            f"{names}{more}. Move them away"
        )
