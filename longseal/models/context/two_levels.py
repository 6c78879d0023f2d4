"""Attention of which near keys are met at one angle and far keys at another, in one softmax.

Blocks of queries meet the far keys and the near ones side by side, each in channels of their own:
`[far, near] . [far key, 0]` is the one score and `[far, near] . [0, near key]` the other. So
torch's own kernels make the softmax, no row x row mask exists, and what is kept for the backward
pass is queries, keys and values alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional

from longseal.models.few_queries import few_queries, strip_attention


@dataclass(frozen=True, eq=False)
class Block:
    """A few queries, and what they see.

    Attributes:
        rows: which of the queries.
        far, near: which keys may be far, and which near, from any of them.
        mask: `([batch,] rows, far + near)` bool: which of these each sees.
    """

    rows: slice
    far: slice
    near: slice
    mask: Tensor


#: Gives the blocks of a pass, all queries in their order; their masks do not exist together.
Blocks = Callable[[], Iterator[Block]]


def causal_blocks(
    like: tuple[Tensor, Tensor], neighbours: int, valid: Tensor | None = None
) -> Iterator[Block]:
    """Blocks of the last tokens of a row, each of which sees all before it and itself.

    Args:
        like: the queries and the keys: `(batch, heads, tokens, head_dim)`.
        neighbours: keys are far from this many tokens on.
        valid: `(batch, keys)` bool: keys that are no padding. A token of padding sees itself, so
            that what is made of it stays finite.
    """
    query, key = like
    queries, keys = query.shape[2], key.shape[2]
    few = few_queries(query.shape[1], key.shape[1], keys)
    places = torch.arange(keys, device=key.device)
    for start in range(0, queries, few):
        end = min(start + few, queries)
        first, last = keys - queries + start, keys - queries + end
        far, near = slice(0, max(0, last - neighbours)), slice(max(0, first - neighbours + 1), last)
        rows = places[first:last, None]
        back = rows - places[near]
        seen = torch.cat([places[far] <= rows - neighbours, (back >= 0) & (back < neighbours)], 1)
        if valid is not None:
            itself = functional.pad(back == 0, (far.stop, 0))
            known = torch.cat([valid[:, far], valid[:, near]], dim=1)[:, None]
            seen = (seen & known) | (itself if neighbours else False)
        yield Block(slice(start, end), far, near, seen)


def two_level_attention(
    query: tuple[Tensor, Tensor],
    key: tuple[Tensor, Tensor],
    value: Tensor,
    blocks: Blocks,
    scaling: float | None,
) -> Tensor:
    """Attend to near and far keys in one softmax; the gradient is exact.

    Args:
        query: as near and as far keys meet them, `(batch, n_heads, queries, head_dim)` each.
        key: near and far, `(batch, n_kv_heads, keys, head_dim)` each.
        value: `(batch, n_kv_heads, keys, width)`.

    Returns:
        `(batch, queries, n_heads, width)`.
    """
    scale = query[0].shape[-1] ** -0.5 if scaling is None else scaling
    made: Tensor = _TwoLevels.apply(*query, *key, value, blocks, scale)  # type: ignore[no-untyped-call]
    return made


class _TwoLevels(Function):
    """Block by block; the backward pass runs each block again."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        *tensors, blocks, scale = given
        ctx.save_for_backward(*tensors)
        ctx.blocks, ctx.scale = blocks, scale
        return torch.cat([_attend(_parts(tensors, b), b.mask, scale) for b in blocks()], dim=1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        tensors = ctx.saved_tensors
        wide = [torch.promote_types(tensor.dtype, torch.float32) for tensor in tensors]
        found = [torch.zeros_like(t, dtype=to) for t, to in zip(tensors, wide, strict=True)]
        for block in ctx.blocks():
            with torch.enable_grad():
                leaves = [part.detach().requires_grad_() for part in _parts(tensors, block)]
                made = _attend(leaves, block.mask, ctx.scale)
            wanted = gradients[0][:, block.rows]
            new = torch.autograd.grad(made, leaves, wanted, allow_unused=True)
            for into, more in zip(_parts(found, block), new, strict=True):
                if more is not None:
                    into += more
        return (*(f.to(t.dtype) for f, t in zip(found, tensors, strict=True)), None, None)


def _parts(tensors: Any, block: Block) -> tuple[Tensor, ...]:
    """Of the near and far queries, the near and far keys and the values, what a block meets."""
    query, far_query, key, far_key, value = tensors
    return (
        query[:, :, block.rows],
        far_query[:, :, block.rows],
        key[:, :, block.near],
        far_key[:, :, block.far],
        value[:, :, block.far],
        value[:, :, block.near],
    )


def _attend(parts: Sequence[Tensor], mask: Tensor, scale: float) -> Tensor:
    """One block, of its `_parts`: `(batch, queries, n_heads, width)`."""
    query, far_query, key, far_key, far_value, value = parts
    if not far_key.shape[2]:
        return strip_attention(query, key, value, mask, scale)
    d, width = key.shape[-1], value.shape[-1]
    queries = torch.cat([far_query, query], dim=-1)
    keys = torch.cat([functional.pad(far_key, (0, d)), functional.pad(key, (d, 0))], dim=2)
    values = torch.cat([far_value, value], dim=2)
    if width < 2 * d:  # kernels want keys and values of one width
        values = functional.pad(values, (0, 2 * d - width))
    return strip_attention(queries, keys, values, mask, scale)[..., :width]
