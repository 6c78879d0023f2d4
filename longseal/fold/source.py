"""Where the files of a model are: a folder, or the hub's cache."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HFValidationError

from longseal.errors import LongsealError
from longseal.fold.checkpoint import INDEX, SINGLE, weight_map
from longseal.fold.copying import OTHER_WEIGHTS
from longseal.models.load import locate


@dataclass(frozen=True)
class Files:
    """The files of a model.

    Attributes:
        cached: whether the hub's cache holds them, where weights that are not part of the
            checkpoint may lie as well: they are nobody's to move away.
    """

    folder: Path
    cached: bool


def files_of(source: str) -> Files | None:
    """Find a model's files, and fetch them where they are the hub's; None for a GGUF.

    Raises:
        LongsealError: there are none.
    """
    place, options = locate(source)
    if "gguf_file" in options:
        return None
    if Path(place).is_dir():
        return Files(Path(place), cached=False)
    try:
        return Files(_fetch(place), cached=True)
    except (OSError, HFValidationError) as error:
        first = next((line for line in str(error).splitlines() if line.strip()), repr(error))
        raise LongsealError(f"{source} cannot be fetched whole: {first}") from error


def _fetch(name: str) -> Path:
    """Everything but weights first, then the shards that the index names, and no others."""
    weights = [*OTHER_WEIGHTS, "*.safetensors"]
    folder = Path(snapshot_download(name, ignore_patterns=[*weights, "original/*"]))
    indexed = (folder / INDEX).is_file()
    shards = sorted(set(weight_map(folder).values())) if indexed else [SINGLE]
    return Path(snapshot_download(name, revision=folder.name, allow_patterns=shards))
