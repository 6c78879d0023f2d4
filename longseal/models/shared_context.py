"""Many questions on one context: attention of a packed row, through transformers' own interface.

A packed row is `context | block 0 | block 1 | ...`. Each block sees the context and itself, never
another block, and its positions go on from the context's end. The context runs as plain causal
attention, the blocks as a narrow strip of queries; no length x length mask is made and no model
code is touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from longseal.models.arguments import takes, vocabulary_size

_NAME = "longseal_shared_context"


@dataclass(frozen=True)
class Layout:
    """Who sees whom in a packed row.

    Attributes:
        context: tokens at the start that every block sees.
        blocks: `(length - context,)` int64: the block of each token after the context.
    """

    context: int
    blocks: Tensor

    def strip(self, queries: int) -> Tensor:
        """What each of the last `queries` tokens sees: `(queries, length)` bool."""
        total = len(self.blocks)
        places = torch.arange(total, device=self.blocks.device)
        rows = places[total - queries :]
        own = (self.blocks[rows, None] == self.blocks) & (rows[:, None] >= places)
        return torch.cat([own.new_ones(queries, self.context), own], dim=1)


@dataclass(frozen=True)
class PackedRow:
    """A packed row as the model takes it.

    Attributes:
        tokens: `(1, length)` int64.
        positions: `(1, length)` int64: each token's place in its own prompt.
        ends: `(n_blocks,)` int64: the place of each block's last token.
        layout: who sees whom.
    """

    tokens: Tensor
    positions: Tensor
    ends: Tensor
    layout: Layout

    @classmethod
    def of(
        cls, context: Sequence[int], blocks: Sequence[Sequence[int]], device: torch.device
    ) -> PackedRow:
        """Pack `context` and `blocks`, none of them empty."""
        start = len(context)
        lengths = torch.tensor([len(block) for block in blocks], device=device)
        tokens = [*context, *(token for block in blocks for token in block)]
        places = [*range(start), *(start + i for block in blocks for i in range(len(block)))]
        return cls(
            tokens=torch.tensor([tokens], device=device),
            positions=torch.tensor([places], device=device),
            ends=start + lengths.cumsum(0) - 1,
            layout=Layout(
                start, torch.arange(len(blocks), device=device).repeat_interleave(lengths)
            ),
        )


_LAYOUT: ContextVar[Layout] = ContextVar("layout")


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend within a packed row, or from its last tokens to what the cache holds of it.

    Args:
        query: `(1, n_heads, queries, head_dim)`.
        key, value: `(1, n_kv_heads, length, head_dim)`.
        attention_mask: not used: the layout says who sees whom.

    Returns:
        `(1, queries, n_heads, head_dim)`, and None for the weights.
    """
    layout = _LAYOUT.get()
    queries, length = query.shape[2], key.shape[2]
    whole = queries == length
    parts = []
    if whole:
        n = layout.context
        context, _ = sdpa_attention_forward(
            module,
            query[:, :, :n],
            key[:, :, :n],
            value[:, :, :n],
            None,
            scaling=scaling,
            is_causal=True,
        )
        parts.append(context)
        query, queries = query[:, :, n:], queries - n
    if queries:
        mask = layout.strip(queries)
        parts.append(_strip_attention(query, key, value, mask, scaling))
    return torch.cat(parts, dim=1), None


def _strip_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scaling: float | None
) -> Tensor:
    """Attention of few queries; the heads of a group stand side by side, so no key is copied."""
    _, n_heads, queries, _ = query.shape
    n_kv_heads = key.shape[1]
    group = n_heads // n_kv_heads
    grouped = query.reshape(1, n_kv_heads, group * queries, query.shape[-1])
    out = functional.scaled_dot_product_attention(
        grouped, key, value, attn_mask=mask.repeat(group, 1), scale=scaling
    )
    return out.reshape(1, n_heads, queries, value.shape[-1]).transpose(1, 2)


AttentionInterface.register(_NAME, _attention)


@contextmanager
def packed_attention(network: PreTrainedModel) -> Iterator[None]:
    """Let the network attend by packed rows inside the block (`row_layout` names the row)."""
    before = network.config._attn_implementation
    network.set_attn_implementation(_NAME)
    try:
        yield
    finally:
        network.set_attn_implementation(before)


@contextmanager
def row_layout(layout: Layout) -> Iterator[None]:
    """Say which row the passes inside the block belong to, the backward pass included."""
    token = _LAYOUT.set(layout)
    try:
        yield
    finally:
        _LAYOUT.reset(token)


_SHARES: WeakKeyDictionary[PreTrainedModel, bool] = WeakKeyDictionary()


def shares_context(network: PreTrainedModel) -> bool:
    """Whether packed rows give what ordinary rows give; tried out once for each network.

    Not so for windowed, chunked and recurrent layers, for position biases that go by place in the
    row, and for models that do not take the attention interface: those run ordinary rows.
    """
    if network not in _SHARES:
        _SHARES[network] = _attends_to_everything(network) and _packs_exactly(network)
    return _SHARES[network]


def _attends_to_everything(network: PreTrainedModel) -> bool:
    config = network.config.get_text_config(decoder=True)
    kinds = getattr(config, "layer_types", None)
    if kinds:
        return set(kinds) == {"full_attention"}
    return not (
        getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True)
    )


@torch.no_grad()
def _packs_exactly(network: PreTrainedModel) -> bool:
    if not (takes(network, "position_ids") and takes(network, "logits_to_keep")):
        return False
    vocabulary = vocabulary_size(network)
    context, *blocks = (
        [(7 + 13 * i * i) % vocabulary for i in span]
        for span in (range(23), range(30, 36), range(40, 47))
    )
    ordinary = [
        network(input_ids=torch.tensor([context + block], device=network.device)).logits[0, -1]
        for block in blocks
    ]
    row = PackedRow.of(context, blocks, network.device)
    try:
        with packed_attention(network), row_layout(row.layout):
            packed = network(
                input_ids=row.tokens, position_ids=row.positions, logits_to_keep=row.ends
            ).logits[0]
    except (RuntimeError, ValueError, TypeError, KeyError, AttributeError):
        return False  # this family does not go through the interface
    expected = torch.stack(ordinary).float()
    tolerance = 1e-3 if network.dtype == torch.float32 else 0.1
    return bool((packed.float() - expected).abs().max() <= tolerance * expected.std())
