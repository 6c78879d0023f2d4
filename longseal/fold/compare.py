"""Whether a folded model says what its base says with the adapter attached."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from longseal.errors import LongsealError
from longseal.lora import AnyAdapter
from longseal.models.arguments import vocabulary_size
from longseal.models.load import LanguageModel, load_alike

_PROBE_TOKENS = 128
_TOLERANCE = 0.1  # of the logits' spread; 16-bit models stay well below it


def hooked_logits(model: LanguageModel, adapter: AnyAdapter) -> Tensor:
    """Logits with the adapter attached: `(128, vocabulary)`, float32."""
    with adapter.attached(model):
        return _logits(model)


def logit_difference(model: LanguageModel, folder: Path, hooked: Tensor) -> float:
    """Load the folded checkpoint as `model` was loaded: the largest difference to `hooked`.

    Raises:
        LongsealError: they differ by more than rounding can explain.
    """
    folded = _logits(load_alike(model, folder))
    difference = float((folded - hooked).abs().max())
    usual = float((folded - hooked).square().mean().sqrt())  # the largest grows with the vocabulary
    if not usual <= _TOLERANCE * float(hooked.std()):
        raise LongsealError(
            f"the folded model's logits differ from the tuned model's by {difference:.3g}: "
            "nothing was written. Please report this architecture"
        )
    return difference


@torch.no_grad()
def _logits(model: LanguageModel) -> Tensor:
    """Logits over a fixed row of tokens: `(128, vocabulary)`, float32."""
    vocabulary = vocabulary_size(model.network)
    tokens = [(11 + 37 * i * i) % vocabulary for i in range(_PROBE_TOKENS)]
    row = torch.tensor([tokens], device=model.device)
    logits: Tensor = model.network(input_ids=row, use_cache=False).logits
    return logits[0].float()
