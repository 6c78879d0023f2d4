"""A low-rank adapter and the base it belongs to; on disk PEFT's own, with a `longseal.json`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from longseal.errors import LongsealError
from longseal.files import new_folder
from longseal.lora.low_rank import LowRank, LowRankKind
from longseal.lora.reading import read
from longseal.models.fingerprint import Fingerprint, fingerprint
from longseal.models.load import LanguageModel
from longseal.record import RECORD
from longseal.scales.base import check_base, check_extension
from longseal.scales.reading import PREFIX, WEIGHTS


@dataclass(frozen=True, eq=False)
class LoraAdapter:
    """Low-rank updates, the base they belong to and how they came about.

    Attributes:
        updates: what PEFT adds to the projections.
        base: what the base was loaded from.
        base_fingerprint: a few weights of the base's tensors; another base is refused.
        record: settings, seed, the choice that was made, and its figures.
    """

    updates: LowRank
    base: str
    base_fingerprint: Fingerprint
    record: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, model: LanguageModel, updates: LowRank, record: dict[str, Any]) -> LoraAdapter:
        """The adapter that holds `updates` of `model`, as they stand now."""
        tensors = {name: t.detach().cpu().clone() for name, t in updates.tensors.items()}
        kept = LowRank(updates.kind, tensors, updates.rank, updates.alpha, updates.fan_in_fan_out)
        return cls(kept, model.source, fingerprint(model.network), model.origin | record)

    @property
    def kind(self) -> LowRankKind:
        """`lora` or `dora`."""
        return self.updates.kind

    @property
    def count(self) -> int:
        """How many numbers were learned."""
        return self.updates.count

    @property
    def note(self) -> str | None:
        """What a user of this adapter should know: nothing."""
        return None

    def check_base(self, model: LanguageModel) -> None:
        """Refuse a model with other weights or another extension.

        Raises:
            LongsealError: it is another base, or this one with an adapter folded in already.
        """
        check_extension(self.record, model)
        check_base(self.base, self.base_fingerprint, model)

    @contextmanager
    def attached(self, model: LanguageModel) -> Iterator[None]:
        """Adapt the model's projections inside the block.

        Raises:
            LongsealError: the model is another base, or something is attached to it already.
        """
        self.check_base(model)
        with self.updates.attached(model.network):
            yield

    def save(self, folder: str | Path) -> None:
        """Write the folder, whole or not at all.

        An adapter that is there already is replaced; anything else is left alone.

        Raises:
            LongsealError: it cannot be written, or holds something that is no adapter.
        """
        folder = Path(folder).resolve()
        taken = folder.is_file() or (folder.is_dir() and any(folder.iterdir()))
        if taken and not (folder / WEIGHTS).is_file():
            raise LongsealError(f"{folder} holds something that is no adapter: name another folder")
        config = self.updates.config(self.base)
        config.inference_mode = True
        tensors = {
            f"{PREFIX}{name}": tensor.contiguous() for name, tensor in self.updates.tensors.items()
        }
        packages = ("longseal", "torch", "transformers", "peft")
        record = {
            "kind": self.kind,
            "base": self.base,
            "versions": {name: version(name) for name in packages},
            **self.record,
            "modules": self.updates.modules,
            "base_fingerprint": asdict(self.base_fingerprint),
        }
        with new_folder(folder) as partial:
            config.save_pretrained(str(partial))
            save_file(tensors, partial / WEIGHTS, {"format": "pt"})
            (partial / RECORD).write_text(json.dumps(record, indent=1) + "\n", "utf-8")

    @classmethod
    def load(cls, folder: str | Path) -> LoraAdapter:
        """Read an adapter that `save` wrote.

        Raises:
            LongsealError: it is missing, damaged (a module, a shape or a value is not as it should
                be), or an adapter of another type.
        """
        stored = read(Path(folder))
        return cls(stored.updates, stored.base, stored.fingerprint, stored.record)
