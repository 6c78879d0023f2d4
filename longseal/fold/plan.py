"""All that a fold does to a folder: worked out before anything is written, then done in one go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedModel

from longseal.config import Projection
from longseal.fold.base import check_base
from longseal.fold.changes import Change, changes
from longseal.fold.checkpoint import Checkpoint
from longseal.fold.copying import Contents, contents, copy_file
from longseal.fold.merge import Merge, merge, merges
from longseal.fold.multiply import Rounding, multiply
from longseal.fold.names import Names, empty_network
from longseal.fold.source import Files
from longseal.lora import AnyAdapter, LoraAdapter
from longseal.models.load import LanguageModel


@dataclass(frozen=True)
class Plan:
    """What is copied, and what is changed in the copy."""

    folder: Path
    contents: Contents
    changes: Sequence[Change | Merge]

    @classmethod
    def of(
        cls,
        files: Files,
        adapter: AnyAdapter,
        projection: Projection,
        model: LanguageModel | None,
    ) -> Plan:
        """Read the headers, find the tensors, and refuse what cannot be folded.

        Args:
            model: the loaded model, where there is one; asked for names that the files lack.
        """
        checkpoint = Checkpoint.of(files.folder, strays=files.cached)

        def network() -> PreTrainedModel | None:
            return empty_network(files.folder) if model is None else model.network

        names = Names(checkpoint.tensors, network)
        found: Sequence[Change | Merge]
        if isinstance(adapter, LoraAdapter):
            found = merges(checkpoint, names, adapter.updates)
        else:
            found = changes(checkpoint, names, adapter.scales, projection)
        check_base(checkpoint, names, adapter)
        return cls(files.folder, contents(files.folder, checkpoint.shards), found)

    def copy(self, target: Path, rounding: Rounding) -> None:
        """Copy the folder; each shard is folded into while it is still in the system's memory."""
        for folder in self.contents.folders:
            (target / folder).mkdir()
        for file in self.contents.files:
            copy_file(self.folder / file, target / file)
            self.change(target, [c for c in self.changes if c.path == str(file)], rounding)

    @staticmethod
    def change(folder: Path, found: Sequence[Change | Merge], rounding: Rounding) -> None:
        """Fold into files in place."""
        for change in found:
            if isinstance(change, Merge):
                merge(folder / change.path, change, rounding)
            else:
                multiply(folder / change.path, change, rounding)
