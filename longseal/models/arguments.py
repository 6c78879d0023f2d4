"""How a network's `forward` takes what not every family, or every transformers, takes alike."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import torch
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


def ordinary_tokens(network: PreTrainedModel, count: int) -> Tensor:
    """A row of tokens that the config gives no meaning of their own: `(1, count)`, int64."""
    special = set(_token_ids(network.config.to_dict()))
    usual = [token for token in range(vocabulary_size(network)) if token not in special]
    row = [usual[(7 + 5 * i) % len(usual)] for i in range(count)]
    return torch.tensor([row], device=network.device)


def _token_ids(settings: Mapping[str, Any]) -> Iterator[int]:
    """Every number that a config names as a token."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _token_ids(value)
        elif "token" in str(name):
            numbers = value if isinstance(value, list) else [value]
            yield from (number for number in numbers if type(number) is int)
