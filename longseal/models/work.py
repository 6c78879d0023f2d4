"""What a forward pass takes, in operations."""

from __future__ import annotations

from torch import nn

from longseal.models.load import LanguageModel


def operations(model: LanguageModel, tokens: int) -> float:
    """Operations of a forward pass over a row: 2 n (weights + n layers width).

    The second term is the attention's share. The embedding multiplies nothing.
    """
    embedding = model.network.get_input_embeddings()
    assert isinstance(embedding, nn.Embedding)
    parameters = sum(p.numel() for p in model.network.parameters()) - embedding.weight.numel()
    return 2.0 * tokens * (parameters + tokens * sum(site.channels for site in model.sites))
