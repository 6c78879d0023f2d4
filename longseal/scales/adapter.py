"""Scales and the base they belong to; on disk a PEFT IA3 adapter with a `longseal.json` beside."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from math import isfinite
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from longseal.config import ScaleKind
from longseal.errors import LongsealError
from longseal.files import new_folder
from longseal.models.fingerprint import Fingerprint, fingerprint
from longseal.models.load import LanguageModel
from longseal.models.sites import Site
from longseal.record import RECORD, extension
from longseal.scales.base import check_base, check_extension, same_base
from longseal.scales.reading import PREFIX, SUFFIX, WEIGHTS, plain_path, read
from longseal.scales.scales import Scales

__all__ = ["WEIGHTS", "Adapter"]


@dataclass(frozen=True, eq=False)
class Adapter:
    """Scales, the base they belong to and how they came about.

    Attributes:
        scales: the deltas of every site. The heads of an adapter that PEFT alone wrote are not
            known: each of its sites counts as one head until `on` gives it a model's own sites.
        base: what the base was loaded from; empty where that is not known.
        base_fingerprint: a few weights of the base's tensors, and another base is refused; None in
            an adapter that PEFT alone wrote: there is nothing to check.
        record: settings, seed, the choice that was made, and its figures.
    """

    scales: Scales
    base: str
    base_fingerprint: Fingerprint | None
    record: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, model: LanguageModel, scales: Scales, record: dict[str, Any]) -> Adapter:
        """The adapter that holds `scales` of `model`."""
        return cls(scales, model.source, fingerprint(model.network), model.origin | record)

    @classmethod
    def product(cls, parts: Sequence[tuple[Adapter, float]]) -> Adapter:
        """Adapters of one base multiplied: a channel's scale is the product of `1 + w * delta`.

        Args:
            parts: each adapter and its strength `w`: 0 leaves it out, 1 takes it as it is.

        Returns:
            An adapter of kind `head` if all parts are, else `channel`; its record holds theirs.

        Raises:
            LongsealError: there are none, a strength is no finite number, the bases differ, or so
                do the sites.
        """
        if not parts:
            raise LongsealError("there is nothing to multiply: name one adapter or more")
        for _, strength in parts:
            if not isfinite(strength):
                raise LongsealError(f"a strength of {strength} cannot be: give a finite number")
        # One that knows its base and its heads leads, so that the product knows them too.
        leading = next((part for part, _ in parts if part.base_fingerprint), parts[0][0])
        for part, _ in parts:
            if not same_base(leading.base_fingerprint, part.base_fingerprint):
                raise LongsealError(
                    f"the adapters were made for different bases ({leading.base} and {part.base}): "
                    "only adapters of one base can be multiplied"
                )
            ways = [extension(each.record) or "none" for each in (leading, part)]
            if ways[0] != ways[1]:
                raise LongsealError(
                    f"the adapters were tuned under different extensions ({ways[0]} and {ways[1]}):"
                    " only those of one can be multiplied"
                )
        scales = Scales.product([(part.on(leading.scales.sites).scales, w) for part, w in parts])
        if not scales.finite:
            raise LongsealError("the product is not finite: give smaller strengths")
        record = {n: leading.record[n] for n in ("window", "extend") if n in leading.record} | {
            "parts": [
                {"strength": w, "kind": part.kind, "base": part.base, "record": part.record}
                for part, w in parts
            ]
        }
        return cls(scales, leading.base, leading.base_fingerprint, record)

    @property
    def kind(self) -> ScaleKind:
        """`head` or `channel`."""
        return self.scales.kind

    @property
    def note(self) -> str | None:
        """What a user of this adapter should know; None where there is nothing to say."""
        if self.base_fingerprint is not None:
            return None
        return (
            "the adapter has no fingerprint of its base, like all that PEFT alone wrote: whether "
            "it was made for this model cannot be checked"
        )

    @property
    def heads_known(self) -> bool:
        """Whether its sites have their true heads: not where PEFT alone wrote it, until `on`."""
        return self.base_fingerprint is not None or any(s.n_heads > 1 for s in self.scales.sites)

    def times(self, strength: float) -> Adapter:
        """The same adapter at another strength: 0 changes nothing, 1 is as it was."""
        return replace(self, scales=self.scales.times(strength))

    def on(self, sites: Sequence[Site]) -> Adapter:
        """The same adapter with a model's own sites, its heads included.

        Raises:
            LongsealError: the model's output projections are not those that are scaled; it says
                which one differs.
        """
        if self.scales.sites == tuple(sites):
            return self
        mine = {plain_path(site.name): site for site in self.scales.sites}
        theirs = {plain_path(site.name): site for site in sites}
        foreign = [site.name for name, site in mine.items() if name not in theirs]
        if foreign:
            raise self._unfit(f"{foreign[0]} is no output projection that longseal scales here")
        missing = [site.name for name, site in theirs.items() if name not in mine]
        if missing:
            raise self._unfit(f"it leaves out {missing[0]}")
        deltas = {}
        for name, site in theirs.items():
            self._check_site(mine[name], site)
            rows = (site.n_heads, -1) if self.kind == "channel" else (site.n_heads, 1)
            deltas[site.name] = self.scales.deltas[mine[name].name].reshape(rows)
        return replace(self, scales=Scales(self.kind, tuple(sites), deltas))

    def check_base(self, model: LanguageModel) -> None:
        """Refuse a model with other weights or another extension, or that these are folded into.

        Raises:
            LongsealError: so it is.
        """
        check_extension(self.record, model)
        check_base(self.base, self.base_fingerprint, model)

    @contextmanager
    def attached(self, model: LanguageModel) -> Iterator[None]:
        """Scale the model's heads inside the block.

        Raises:
            LongsealError: the model is another base, has scales folded in or attached already, or
                computes its attention without its output projections.
        """
        scales = self.on(model.sites).scales
        self.check_base(model)
        with scales.attached(model.network):
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
        from peft import IA3Config, TaskType  # seconds to import: only where it is used

        sites = self.scales.sites
        names = [site.name for site in sites]  # by path: a namesake elsewhere is left alone
        config = IA3Config(
            base_model_name_or_path=self.base or None,
            task_type=TaskType.CAUSAL_LM,
            target_modules=names,
            feedforward_modules=names,
            fan_in_fan_out=sites[0].input_axis == 0,
            inference_mode=True,
        )
        scales = {
            f"{PREFIX}{site.name}{SUFFIX}": self.scales.scale(site)[None].clone() for site in sites
        }
        known = self.base_fingerprint
        record = {
            "kind": self.kind,
            "base": self.base,
            "versions": {name: version(name) for name in ("longseal", "torch", "transformers")},
            **self.record,
            "sites": [asdict(site) for site in sites],
            "heads": {
                site.name: self.scales.scale(site).view(site.n_heads, -1).mean(1).tolist()
                for site in sites
            },
            "base_fingerprint": None if known is None else asdict(known),
        }
        with new_folder(folder) as partial:
            config.save_pretrained(str(partial))
            save_file(scales, partial / WEIGHTS, {"format": "pt"})
            (partial / RECORD).write_text(json.dumps(record, indent=1) + "\n", "utf-8")

    @classmethod
    def load(cls, folder: str | Path) -> Adapter:
        """Read an adapter that `save` wrote, or one of PEFT's that scales inputs (see `note`).

        Raises:
            LongsealError: it is missing, damaged (a layer, a shape or a value is not as it should
                be), a pickle, or an adapter of another type.
        """
        stored = read(Path(folder))
        return cls(stored.scales, stored.base, stored.fingerprint, stored.record)

    def _check_site(self, mine: Site, theirs: Site) -> None:
        other_heads = self.heads_known and mine.n_heads != theirs.n_heads
        if mine.channels != theirs.channels or other_heads:
            raise self._unfit(
                f"{theirs.name} has {_size(theirs)} here, and {_size(mine)} in the adapter"
            )
        if mine.input_axis != theirs.input_axis:
            raise self._unfit(
                f"the weight of {theirs.name} has its input in axis {theirs.input_axis} here, and "
                f"in axis {mine.input_axis} in the adapter (fan_in_fan_out)"
            )

    def _unfit(self, reason: str) -> LongsealError:
        if self.base_fingerprint is None:
            return LongsealError(
                f"this PEFT adapter does not fit: {reason}. longseal takes those that scale the "
                "inputs of all output projections and of nothing else: merge it into the base with "
                "PEFT's merge_and_unload"
            )
        return LongsealError(
            f"the adapter was made for another base ({self.base}): {reason}. Use the base that the "
            "adapter names, or tune this model anew"
        )


def _size(site: Site) -> str:
    return f"{site.n_heads} x {site.width} channels"
