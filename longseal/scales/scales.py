"""The learnable tensors: one delta a head or a channel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from longseal.config import ScaleKind
from longseal.models.sites import Head, Site, seats
from longseal.scales.effect import checked_scaling
from longseal.scales.hooks import Factor


@dataclass(frozen=True, eq=False)
class Scales:
    """Deltas (scale - 1) of every site, in float32 whatever the model's dtype.

    bfloat16 cannot hold 1.003, so neither the scale nor a product with it is made in 16 bits.

    Attributes:
        kind: `head` (SEAL-H) or `channel` (SEAL-C), paper section 3.
        sites: the output projections, in layer order.
        deltas: by site name; `(n_heads, 1)` for `head`, `(n_heads, width)` for `channel`.
    """

    kind: ScaleKind
    sites: tuple[Site, ...]
    deltas: Mapping[str, Tensor]

    @classmethod
    def zeros(cls, kind: ScaleKind, sites: Sequence[Site]) -> Scales:
        """Scales that change nothing."""
        shapes = {s.name: (s.n_heads, s.width if kind == "channel" else 1) for s in sites}
        return cls(kind, tuple(sites), {name: torch.zeros(shape) for name, shape in shapes.items()})

    @classmethod
    def product(cls, parts: Sequence[tuple[Scales, float]]) -> Scales:
        """Scales of the same sites, each at its strength, multiplied; `head` if all of them are."""
        kind: ScaleKind = "head" if all(scales.kind == "head" for scales, _ in parts) else "channel"
        made = cls.zeros(kind, parts[0][0].sites)
        for scales, strength in parts:
            for name, delta in scales.times(strength).deltas.items():
                made.deltas[name].add_(delta + made.deltas[name] * delta)  # (1 + a)(1 + b) - 1
        return made

    @property
    def count(self) -> int:
        """How many numbers are learned."""
        return sum(delta.numel() for delta in self.deltas.values())

    def scale(self, site: Site) -> Tensor:
        """Factor of each input channel of the projection: `(n_heads * width,)`, float32."""
        return (1 + self.deltas[site.name]).expand(site.n_heads, site.width).reshape(-1)

    @property
    def by_head(self) -> dict[Head, Tensor]:
        """The scales of every head's channels: `(width,)` each, float32."""
        scales = {s.name: self.scale(s).detach().view(s.n_heads, s.width) for s in self.sites}
        return {head: scales[site.name][n] for head, (site, n) in seats(self.sites).items()}

    def times(self, strength: float) -> Scales:
        """The same direction, `strength` times as far from 1."""
        deltas = {name: delta.detach() * strength for name, delta in self.deltas.items()}
        return Scales(self.kind, self.sites, deltas)

    @property
    def unchanged(self) -> bool:
        """Whether every scale is exactly 1."""
        return not any(delta.any() for delta in self.deltas.values())

    @property
    def finite(self) -> bool:
        """Whether no delta is NaN or infinite."""
        return all(bool(delta.isfinite().all()) for delta in self.deltas.values())

    @contextmanager
    def attached(self, network: PreTrainedModel) -> Iterator[None]:
        """Scale the network's heads inside the block, and leave it bit-identical after.

        Deltas may change inside the block, and gradients reach them.

        Raises:
            LongsealError: scales are attached already, or would have no effect (`check_effect`).
        """

        def factor(site: Site) -> Factor:
            return lambda _: self.scale(site)

        factors = {site.name: factor(site) for site in self.sites}
        with checked_scaling(network, self.sites, factors):
            yield
