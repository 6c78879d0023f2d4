"""Whether two ways to compute the same thing agree."""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import PreTrainedModel


def alike(network: PreTrainedModel, found: Tensor, expected: Tensor) -> bool:
    """Whether what a network gives differs by no more than its rounding."""
    found, expected = found.float(), expected.float()
    tolerance = (1e-3 if network.dtype == torch.float32 else 0.1) * expected.std()
    return bool((found - expected).abs().max() <= tolerance)
