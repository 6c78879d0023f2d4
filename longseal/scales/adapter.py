"""Scales on disk: a PEFT IA3 adapter, with a `longseal.json` beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from longseal.config import Kind
from longseal.errors import LongsealError
from longseal.files import new_folder, read_json
from longseal.models.fingerprint import Fingerprint, check_network, fingerprint
from longseal.models.load import LanguageModel
from longseal.models.sites import Site
from longseal.scales.scales import Scales

RECORD = "longseal.json"
WEIGHTS = "adapter_model.safetensors"
_PREFIX, _SUFFIX = "base_model.model.", ".ia3_l"


@dataclass(frozen=True, eq=False)
class Adapter:
    """Scales, the base they belong to and how they came about.

    Attributes:
        scales: the deltas of every site.
        base: what the base was loaded from.
        base_fingerprint: a few weights of the base's tensors; another base is refused.
        record: settings, seed, the choice that was made, and its figures.
    """

    scales: Scales
    base: str
    base_fingerprint: Fingerprint
    record: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, model: LanguageModel, scales: Scales, record: dict[str, Any]) -> Adapter:
        """The adapter that holds `scales` of `model`."""
        return cls(scales, model.source, fingerprint(model.network), record)

    @property
    def kind(self) -> Kind:
        """`head` or `channel`."""
        return self.scales.kind

    def times(self, strength: float) -> Adapter:
        """The same adapter at another strength: 0 changes nothing, 1 is as it was."""
        return replace(self, scales=self.scales.times(strength))

    @contextmanager
    def attached(self, model: LanguageModel) -> Iterator[None]:
        """Scale the model's heads inside the block.

        Raises:
            LongsealError: the model is another base, or has scales attached already.
        """
        self.check_sites(model.sites)
        check_network(self.base_fingerprint, model.network)
        with self.scales.attached(model.network):
            yield

    def check_sites(self, sites: tuple[Site, ...]) -> None:
        """Refuse a model whose output projections are not those that the scales belong to."""
        if self.scales.sites != sites:
            raise LongsealError(
                f"the adapter was made for another base ({self.base}): its output projections "
                "are not this model's"
            )

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
        from peft import IA3Config, TaskType  # seconds to import: only where it is used

        sites = self.scales.sites
        names = [site.name for site in sites]  # by path: a namesake elsewhere is left alone
        config = IA3Config(
            base_model_name_or_path=self.base,
            task_type=TaskType.CAUSAL_LM,
            target_modules=names,
            feedforward_modules=names,
            fan_in_fan_out=sites[0].input_axis == 0,
            inference_mode=True,
        )
        scales = {
            f"{_PREFIX}{site.name}{_SUFFIX}": self.scales.scale(site)[None].clone()
            for site in sites
        }
        record = {
            "kind": self.kind,
            "base": self.base,
            "versions": {name: version(name) for name in ("longseal", "torch", "transformers")},
            **self.record,
            "sites": [vars(site) for site in sites],
            "heads": {
                site.name: self.scales.scale(site).view(site.n_heads, -1).mean(1).tolist()
                for site in sites
            },
            "base_fingerprint": vars(self.base_fingerprint),
        }
        with new_folder(folder) as partial:
            config.save_pretrained(str(partial))
            save_file(scales, partial / WEIGHTS, {"format": "pt"})
            (partial / RECORD).write_text(json.dumps(record, indent=1) + "\n", "utf-8")

    @classmethod
    def load(cls, folder: str | Path) -> Adapter:
        """Read an adapter that `save` wrote.

        Raises:
            LongsealError: it is missing or damaged: a layer, a shape or a value is not as recorded.
        """
        folder = Path(folder)
        if not folder.is_dir():
            raise LongsealError(f"{folder} does not exist: name an adapter's folder")
        record = read_json(folder / RECORD)
        try:
            tensors = load_file(folder / WEIGHTS)
            sites = tuple(Site(**site) for site in record.pop("sites"))
            kind: Kind = record.pop("kind")
            base, known = record.pop("base"), Fingerprint(**record.pop("base_fingerprint"))
            del record["heads"]
        except (OSError, SafetensorError, KeyError, TypeError, AttributeError) as error:
            raise LongsealError(f"{folder} is no longseal adapter: {error}") from error
        expected = {f"{_PREFIX}{site.name}{_SUFFIX}": site for site in sites}
        if tensors.keys() != expected.keys():
            name = min(tensors.keys() ^ expected.keys())
            raise LongsealError(f"{folder} is damaged: {name} is missing or has no place")
        deltas = {
            site.name: _delta(tensors[name], site, kind, folder) for name, site in expected.items()
        }
        return cls(Scales(kind, sites, deltas), base, known, record)


def _delta(scale: torch.Tensor, site: Site, kind: Kind, folder: Path) -> torch.Tensor:
    if scale.shape != (1, site.channels) or not bool(scale.isfinite().all()):
        raise LongsealError(
            f"{folder} is damaged: {site.name} has shape {tuple(scale.shape)}, not "
            f"(1, {site.channels}), or values that are not finite"
        )
    delta = scale.float().view(site.n_heads, site.width) - 1
    if kind == "channel":
        return delta
    if not torch.equal(delta, delta[:, :1].expand_as(delta)):
        raise LongsealError(f"{folder} is damaged: the channels of a head differ in {site.name}")
    return delta[:, :1].clone()
