"""See what heads attend to, while the model runs as ever: in blocks, never length x length."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from longseal.models.context.attention import attend_row, row_positions
from longseal.models.context.layer import extended_layer

_NAME = "longseal_watched"
#: Entries of a block of attention weights, at most.
_BLOCK = 2**23

#: Takes a module, the place of a block's first query and the block's weights, `(n_heads, queries,
#: keys)` float32.
See = Callable[[nn.Module, int, Tensor], None]

_SEE: list[See] = []


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attend by torch's own kernel, and show the weights of one row block by block.

    Args:
        query: `(1, n_heads, tokens, head_dim)`.
        key, value: `(1, n_kv_heads, tokens, head_dim)`.
        attention_mask: `(1, 1, tokens, tokens)`, or None where attention is causal and no more.
    """
    layer = extended_layer(module)
    levels, weights = [(query, key)], None
    if layer is not None and key.shape[2] > layer.neighbours:
        assert attention_mask is None, "one row has no padding"
        own = kwargs["position_ids"]
        out = attend_row(layer, query, key, value, None, own, scaling)
        levels.append(layer.far(query, key, row_positions(own, key.shape[2], None)))
    else:
        out, weights = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs
        )
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    n_heads, tokens = query.shape[1:3]
    group = n_heads // key.shape[1]
    pairs = [(q[0], k[0].float().repeat_interleave(group, 0).transpose(1, 2)) for q, k in levels]
    few = max(1, _BLOCK // (n_heads * tokens))
    places = torch.arange(tokens, device=query.device)
    for start in range(0, tokens, few):
        scores, *far = (scale * (q[:, start : start + few].float() @ keys) for q, keys in pairs)
        rows = places[start : start + few, None]
        if layer is not None and far:
            scores = torch.where(rows - places < layer.neighbours, scores, far[0])
        if attention_mask is None:
            scores = scores.masked_fill(places > rows, -torch.inf)
        elif attention_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attention_mask[0, :, start : start + few], -torch.inf)
        else:
            scores = scores + attention_mask[0, :, start : start + few].float()
        _SEE[-1](module, start, scores.softmax(-1))
    return out, weights


AttentionInterface.register(_NAME, _attention)
AttentionMaskInterface.register(_NAME, sdpa_mask)


@contextmanager
def watched_attention(network: PreTrainedModel, see: See) -> Iterator[None]:
    """Show `see` the attention weights of every pass inside the block; one row a pass."""
    before = network.config._attn_implementation
    network.set_attn_implementation(_NAME)
    _SEE.append(see)
    try:
        yield
    finally:
        _SEE.pop()
        network.set_attn_implementation(before)
