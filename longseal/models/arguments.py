"""How a network's `forward` takes what not every family, or every transformers, takes alike."""

from __future__ import annotations

import inspect
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel


def vocabulary_size(network: PreTrainedModel) -> int:
    """Rows of the input embedding."""
    embedding = network.get_input_embeddings()
    assert isinstance(embedding, nn.Embedding)
    return embedding.num_embeddings


def takes(network: PreTrainedModel, name: str) -> bool:
    """Whether `forward` has an argument called `name`."""
    return name in inspect.signature(network.forward).parameters


def last_logits(network: PreTrainedModel, places: Tensor | int) -> dict[str, Any]:
    """Make `lm_head` see only these places (or the last n), where the family can."""
    return {"logits_to_keep": places} if takes(network, "logits_to_keep") else {}
