"""Packed rows: a context and blocks that share it, in one row of tokens.

    context | block 0 | block 1 | ...

Each block sees the context and itself, never another block, and its positions go on from the
context's end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor


@dataclass(frozen=True)
class Layout:
    """Who sees whom in a packed row.

    Attributes:
        context: tokens at the start that every block sees.
        blocks: `(length - context,)` int64: the block of each token after the context.
    """

    context: int
    blocks: Tensor

    @cached_property
    def positions(self) -> Tensor:
        """Each token's place in its own prompt: `(length,)` int64."""
        own = self.blocks[:, None] == self.blocks
        places = own.tril().sum(1) - 1 + self.context
        return torch.cat([torch.arange(self.context, device=self.blocks.device), places])

    @cached_property
    def longest(self) -> int:
        """Tokens of the longest prompt."""
        return int(self.positions.max()) + 1 if len(self.positions) else 0

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
        numbers = torch.arange(len(blocks), device=device)
        return cls(
            tokens=torch.tensor([tokens], device=device),
            positions=torch.tensor([places], device=device),
            ends=start + lengths.cumsum(0) - 1,
            layout=Layout(start, numbers.repeat_interleave(lengths)),
        )


KeyValue = tuple[Tensor, Tensor]


class Keeps(Protocol):
    """What keeps the keys and values of a row's tokens from pass to pass."""

    def extend(self, layer: int, key: Tensor, value: Tensor) -> KeyValue:
        """Add `(batch, n_kv_heads, tokens, head_dim)`; return all that the layer holds so far."""
        ...


@dataclass
class Memory:
    """Keys and values of a row that grows, a buffer a layer: what a cache is to an ordinary row.

    Attributes:
        capacity: tokens that there is room for.
    """

    capacity: int
    _buffers: dict[int, KeyValue] = field(default_factory=dict)
    _used: dict[int, int] = field(default_factory=dict)

    def extend(self, layer: int, key: Tensor, value: Tensor) -> KeyValue:
        """Add `(batch, n_kv_heads, tokens, head_dim)`; return all that the layer holds so far."""
        if layer not in self._buffers:
            self._buffers[layer] = self._room(key), self._room(value)
        used = self._used.get(layer, 0)
        end = used + key.shape[2]
        keys, values = self._buffers[layer]
        keys[:, :, used:end], values[:, :, used:end] = key, value
        self._used[layer] = end
        return keys[:, :, :end], values[:, :, :end]

    def start(self, tokens: int, capacity: int, *, last: bool) -> Memory:
        """What another row that begins with the same `tokens` can go on from.

        Args:
            last: this row is over: what it holds is let go, a layer at a time.
        """
        made = Memory(capacity)
        for layer in list(self._buffers):
            keys, values = self._buffers.pop(layer) if last else self._buffers[layer]
            made.extend(layer, keys[:, :, :tokens], values[:, :, :tokens])
        return made

    def first(self, tokens: int, row: int = 0) -> dict[int, KeyValue]:
        """The first tokens of one row of a batch, by layer; of the only row where there is one."""

        def part(kept: Tensor) -> Tensor:
            place = row if kept.shape[0] > 1 else 0
            return kept[place : place + 1, :, :tokens]

        return {layer: (part(key), part(value)) for layer, (key, value) in self._buffers.items()}

    def _room(self, like: Tensor) -> Tensor:
        batch, heads, _, width = like.shape
        return like.new_empty(batch, heads, self.capacity, width)


@dataclass
class Branch:
    """What a row keeps that goes on from another's start; that is shared, not copied.

    Attributes:
        start: `(1, n_kv_heads, tokens, head_dim)` of each layer.
    """

    start: Mapping[int, KeyValue]
    _own: dict[int, KeyValue] = field(default_factory=dict)

    def extend(self, layer: int, key: Tensor, value: Tensor) -> KeyValue:
        """Add `(batch, n_kv_heads, tokens, head_dim)`; return all, the start included."""
        if layer in self._own:
            before = self._own[layer]
            key, value = torch.cat([before[0], key], 2), torch.cat([before[1], value], 2)
        self._own[layer] = key, value
        batch = key.shape[0]
        keys, values = (kept.expand(batch, -1, -1, -1) for kept in self.start[layer])
        return torch.cat([keys, key], 2), torch.cat([values, value], 2)


@dataclass(frozen=True)
class Segment:
    """The part of a pass that belongs to one packed row.

    Attributes:
        layout: of the row as it stands with these tokens.
        tokens: how many of the pass's tokens are this row's; they are the row's last ones.
        memory: where the row's earlier tokens are; None where the pass runs the whole row.
    """

    layout: Layout
    tokens: int
    memory: Keeps | None = None
