"""Attention of few queries to many keys, whose mask is no square."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

#: A long row is run by so many queries at a time (fastest on a CPU), or fewer where their mask
#: would have more entries than this.
QUERIES, MASK = 256, 2**26


def few_queries(n_heads: int, n_kv_heads: int, keys: int) -> int:
    """How many queries to run at a time."""
    return max(1, min(QUERIES, MASK // (n_heads // n_kv_heads * keys)))


def strip_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scaling: float | None
) -> Tensor:
    """Attention by a mask; the heads of a group stand side by side, so no key is copied.

    Args:
        query: `(batch, n_heads, queries, head_dim)`.
        key, value: `(batch, n_kv_heads, keys, head_dim)`.
        mask: `(queries, keys)` bool, or `(batch, queries, keys)` where rows differ.

    Returns:
        `(batch, queries, n_heads, width of the values)`.
    """
    batch, n_heads, queries, _ = query.shape
    n_kv_heads = key.shape[1]
    group = n_heads // n_kv_heads
    grouped = query.reshape(batch, n_kv_heads, group * queries, query.shape[-1])
    seen = mask.repeat(group, 1) if mask.ndim == 2 else mask.repeat(1, group, 1)[:, None]
    out = functional.scaled_dot_product_attention(
        grouped, key, value, attn_mask=seen, scale=scaling
    )
    return out.reshape(batch, n_heads, queries, value.shape[-1]).transpose(1, 2)
