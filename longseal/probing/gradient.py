"""A first-order estimate for every head and channel at once: one forward and backward pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from longseal.models.load import LanguageModel
from longseal.models.saving import saving
from longseal.scales.hooks import scaling
from longseal.tasks.loss import loss
from longseal.tasks.prompt import EncodedSample


def slopes(model: LanguageModel, encoded: EncodedSample) -> Mapping[str, Tensor]:
    """How the answers' log-probability changes with each channel's scale, where all are 1.

    Pruning a channel changes it by minus this, to first order; a head, by minus the sum over its
    channels. Layers are run again in the backward pass, so that memory stays near a forward pass's.

    Returns:
        By site name, `(n_heads, width)` float32: nats, the mean over the sample's questions.
    """
    scales = {
        site.name: torch.ones(site.channels, device=model.device, requires_grad=True)
        for site in model.sites
    }

    def factor(scale: Tensor) -> Callable[[Tensor], Tensor]:
        return lambda _: scale

    with (
        scaling(model.network, {name: factor(scale) for name, scale in scales.items()}),
        saving(model.network, "layers"),
    ):
        loss(model, encoded, backward=True)
    tokens = sum(map(len, encoded.answers))
    found = {}
    for site in model.sites:
        gradient = scales[site.name].grad
        made = torch.zeros(site.channels) if gradient is None else gradient.cpu()
        found[site.name] = (-tokens / len(encoded.answers) * made).view(site.n_heads, site.width)
    return found
