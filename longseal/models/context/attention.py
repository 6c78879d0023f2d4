"""Self-Extend as an attention of transformers' interface: whole rows, padding, caches.

https://arxiv.org/abs/2401.01325. Rows no longer than the neighbours are attended to by the model's
own attention, bit for bit.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from longseal.errors import LongsealError
from longseal.models.context.layer import ExtendedLayer, extended_layer
from longseal.models.context.two_levels import causal_blocks


def register(base: str, neighbours: int) -> str:
    """Make an attention that is Self-Extend over another; its name.

    Args:
        base: the model's own attention: eager, sdpa or a flash one.
    """
    name = f"longseal_self_extend_{neighbours}_{base.replace('flash', 'fl')}"  # "flash" means much

    def attention(
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        scaling: float | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        layer = extended_layer(module)
        if layer is None:  # a copy of an extended network, or one that shares its config
            raise LongsealError(
                "this network is not extended, and its config says Self-Extend: load it anew"
            )
        if key.shape[2] > neighbours:
            positions = kwargs["position_ids"]
            return attend_row(layer, query, key, value, attention_mask, positions, scaling), None
        own = _own_attention(base, module)
        found: tuple[Tensor, Tensor | None] = own(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs
        )
        return found

    def mask(
        *args: Any, kv_length: int, attention_mask: Tensor | None = None, **kwargs: Any
    ) -> Any:
        """The mask of the model's own attention; of a long row the padding alone, no square."""
        if kv_length > neighbours:
            whole = attention_mask is None or bool(attention_mask.all())
            return None if whole else attention_mask
        make = ALL_MASK_ATTENTION_FUNCTIONS[base]
        return make(*args, kv_length=kv_length, attention_mask=attention_mask, **kwargs)

    AttentionInterface.register(name, attention)
    AttentionMaskInterface.register(name, mask)
    return name


def _own_attention(base: str, module: nn.Module) -> Callable[..., Any]:
    """What the model attends by itself with; eager attention lies beside the module's class."""
    if base == "eager":
        found: Callable[..., Any] = vars(sys.modules[type(module).__module__])[
            "eager_attention_forward"
        ]
        return found
    own: Callable[..., Any] = ALL_ATTENTION_FUNCTIONS[base]
    return own


def attend_row(
    layer: ExtendedLayer,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    valid: Tensor | None,
    positions: Tensor,
    scaling: float | None,
) -> Tensor:
    """Rows with more keys than the neighbours: `(batch, queries, n_heads, head_dim)`.

    Args:
        query: `(batch, n_heads, queries, head_dim)`: a row's last tokens.
        key, value: `(batch, n_kv_heads, keys, head_dim)`: all tokens of the row so far.
        valid: `(batch, keys)`: what is no padding; None where nothing is.
        positions: of the queries, `(batch or 1, queries)` int64.

    Raises:
        LongsealError: a mask is of more than padding, or a row's tokens do not follow one another.
    """
    if valid is not None and valid.ndim != 2:
        raise LongsealError("Self-Extend takes no attention mask but one of padding")
    known = None if valid is None else valid[:, -key.shape[2] :].bool()
    of_queries, of_keys = row_positions(positions, key.shape[2], known)

    def blocks() -> Any:
        return causal_blocks((query, key), layer.neighbours, known)

    return layer.attend(query, key, value, (of_queries, of_keys), blocks, scaling)


def row_positions(own: Tensor, keys: int, valid: Tensor | None) -> tuple[Tensor, Tensor]:
    """Positions of the queries and of all keys, those from a cache included; padding's are 0.

    Tokens of a row follow one another, so each is a slot's number less the padding before it.
    """
    slots = torch.arange(keys, device=own.device)
    queries = slots[keys - own.shape[1] :]
    start = own - queries  # (batch or 1, queries)
    seen = torch.ones_like(start, dtype=torch.bool) if valid is None else valid[:, queries]
    start = start.expand(len(seen), -1)
    first = start.masked_fill(~seen, -keys).amax(1, keepdim=True)
    if not bool(((start == first) | ~seen).all()):
        raise LongsealError(
            "Self-Extend needs rows whose tokens follow one another: these positions do not"
        )
    return (queries + first).clamp(min=0), (slots + first).clamp(min=0)
