"""A norm with its statistics held: a linear map, whatever the norm."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class FrozenNorm:
    """`gain * (x - mean(x)) + bias`, or without the mean where the norm takes none away.

    Attributes:
        gain, bias: `(hidden,)` float32.
        centred: whether the mean is taken away.
    """

    gain: Tensor
    bias: Tensor
    centred: bool

    @classmethod
    @torch.no_grad()
    def at(cls, norm: nn.Module, stream: Tensor) -> FrozenNorm:
        """The norm as it acts on this `(hidden,)`; it is tried out, so its formula may be any.

        What it divides by depends on the mean square alone. So a vector of the same mean square,
        whose entries are all of one size, shows the gain of each channel without a small divisor.
        """
        bias = norm(torch.zeros_like(stream)).float()
        plain = norm(stream).float()
        shifted = norm(stream + stream.float().square().mean().sqrt().to(stream.dtype)).float()
        centred = bool((shifted - plain).norm() < 0.05 * plain.norm())
        x = stream.float()
        x = x - x.mean() if centred else x
        probe = torch.ones_like(x)
        probe[::2] = -1.0
        probe = probe - probe.mean() if centred else probe
        probe = probe * (x.square().mean() / probe.square().mean()).sqrt()
        gain = (norm(probe.to(stream.dtype)).float() - bias) / probe
        return cls(gain, bias, centred)

    def __call__(self, part: Tensor) -> Tensor:
        """What becomes of a part of what the norm takes, `(..., hidden)`; without the bias."""
        centred = part - part.mean(-1, keepdim=True) if self.centred else part
        return self.gain * centred

    def pulled(self, towards: Tensor) -> Tensor:
        """The direction `d` for which `d @ part` is `towards @ self(part)`."""
        found = self.gain * towards
        return found - found.mean() if self.centred else found
