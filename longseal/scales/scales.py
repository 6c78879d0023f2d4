"""The learnable tensors: one delta a head or a channel, and the hooks that apply them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from longseal.config import Kind
from longseal.errors import LongsealError
from longseal.models.sites import Site


@dataclass(frozen=True, eq=False)
class Scales:
    """Deltas (scale - 1) of every site, in float32 whatever the model's dtype.

    bfloat16 cannot hold 1.003, so neither the scale nor a product with it is made in 16 bits.

    Attributes:
        kind: `head` (SEAL-H) or `channel` (SEAL-C), paper section 3.
        sites: the output projections, in layer order.
        deltas: by site name; `(n_heads, 1)` for `head`, `(n_heads, width)` for `channel`.
    """

    kind: Kind
    sites: tuple[Site, ...]
    deltas: Mapping[str, Tensor]

    @classmethod
    def zeros(cls, kind: Kind, sites: Sequence[Site]) -> Scales:
        """Scales that change nothing."""
        shapes = {s.name: (s.n_heads, s.width if kind == "channel" else 1) for s in sites}
        return cls(kind, tuple(sites), {name: torch.zeros(shape) for name, shape in shapes.items()})

    @property
    def count(self) -> int:
        """How many numbers are learned."""
        return sum(delta.numel() for delta in self.deltas.values())

    def scale(self, site: Site) -> Tensor:
        """Factor of each input channel of the projection: `(n_heads * width,)`, float32."""
        return (1 + self.deltas[site.name]).expand(site.n_heads, site.width).reshape(-1)

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

        Raises:
            LongsealError: scales are attached already.
        """
        projections = [network.get_submodule(site.name) for site in self.sites]
        if any(isinstance(h, _Scaling) for p in projections for h in p._forward_pre_hooks.values()):
            raise LongsealError("scales are attached to this model already: detach them first")
        handles = [
            projection.register_forward_pre_hook(_Scaling(self, site))
            for projection, site in zip(projections, self.sites, strict=True)
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


class _Scaling:
    """Pre-hook of an output projection: multiplies its input, `(..., n_heads * width)`."""

    def __init__(self, scales: Scales, site: Site) -> None:
        self._scales, self._site = scales, site

    def __call__(self, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        hidden = args[0]
        scale = self._scales.scale(self._site).to(hidden.device)
        return ((hidden.float() * scale).to(hidden.dtype), *args[1:])
