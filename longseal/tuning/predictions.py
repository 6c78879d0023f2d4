"""What a model predicts at some places of a text, and how far two such predictions lie apart."""

from __future__ import annotations

import torch
from torch import Tensor

from longseal.models.arguments import last_logits
from longseal.models.load import LanguageModel
from longseal.models.row_length import forget_lengths


def log_probabilities(model: LanguageModel, piece: Tensor, places: Tensor) -> Tensor:
    """Of the token after each place: `(n_places, vocabulary)`, float32; `lm_head` sees no other.

    Args:
        piece: `(n_tokens,)`.
        places: int64.
    """
    network = model.network
    forget_lengths(network)
    keep = last_logits(network, places)
    logits: Tensor = network(input_ids=piece[None], **keep, use_cache=False).logits[0]
    return (logits if keep else logits[places]).float().log_softmax(-1)


def divergence(base: Tensor, now: Tensor) -> Tensor:
    """KL(base || now) token by token, nats; one that the base rules out adds nothing.

    Args:
        base, now: log-probabilities, `(n_places, vocabulary)`.
    """
    return torch.where(base > -torch.inf, base.exp() * (base - now), 0.0)
