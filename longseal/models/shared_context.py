"""Attention of packed rows, through transformers' own attention interface.

The context runs as plain causal attention, the blocks as a narrow strip of queries; no length x
length mask is made and no model code is touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from longseal.models.arguments import takes, vocabulary_size
from longseal.models.context.layer import ExtendedLayer, extended_layer
from longseal.models.context.two_levels import Block, causal_blocks
from longseal.models.few_queries import few_queries, strip_attention
from longseal.models.packed_row import Layout, Memory, PackedRow, Segment
from longseal.models.rounding import alike
from longseal.models.windowed import attends_to_everything

_NAME = "longseal_shared_context"

_PASS: list[Sequence[Segment]] = []  # no ContextVar: on a GPU the backward pass has its own thread


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend within each packed row that the pass holds a part of.

    Args:
        query: `(batch, n_heads, tokens, head_dim)`, the same layout in all of the batch.
        key, value: `(batch, n_kv_heads, tokens, head_dim)`.
        attention_mask: not used: the rows' layouts say who sees whom.

    Returns:
        `(batch, tokens, n_heads, head_dim)`, and None for the weights.
    """
    segments = _PASS[-1]
    sizes = [segment.tokens for segment in segments]
    queries, keys, values = (tensor.split(sizes, dim=2) for tensor in (query, key, value))
    parts = [
        part
        for segment, *piece in zip(segments, queries, keys, values, strict=True)
        for part in _attend(module, segment, *piece, scaling=scaling)
    ]
    return torch.cat(parts, dim=1), None


def _attend(
    module: nn.Module,
    segment: Segment,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    scaling: float | None,
) -> Iterator[Tensor]:
    """One row's part of a pass: its context's tokens if they are in it, then its blocks'."""
    if segment.memory is not None:
        layer = module.layer_idx
        assert isinstance(layer, int)
        key, value = segment.memory.extend(layer, key, value)
    far = extended_layer(module)
    if far is not None and segment.layout.longest > far.neighbours:
        yield _extended(far, segment.layout, query, key, value, scaling)
        return
    context = segment.layout.context
    new = max(0, query.shape[2] - len(segment.layout.blocks))  # tokens of the context
    piece = query[:, :, :new], key[:, :, :context], value[:, :, :context]
    if new and new == context:
        part, _ = sdpa_attention_forward(module, *piece, None, scaling=scaling, is_causal=True)
        yield part
    elif new:
        yield from _continued_attention(*piece, scaling)
    query = query[:, :, new:]
    if query.shape[2]:
        mask = segment.layout.strip(query.shape[2])
        yield strip_attention(query, key, value, mask, scaling)


def _extended(
    layer: ExtendedLayer,
    layout: Layout,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scaling: float | None,
) -> Tensor:
    """The same by Self-Extend; what is far goes by each token's place in its own prompt."""
    keys, queries = key.shape[2], query.shape[2]
    positions = layout.positions
    new = max(0, queries - len(layout.blocks))  # tokens of the context

    def blocks() -> Iterator[Block]:
        part = query[:, :, :new], key[:, :, : layout.context]
        if new:
            yield from causal_blocks(part, layer.neighbours)
        if new < queries:
            yield _strip(layout, slice(new, queries), layer.neighbours)

    places = positions[None, keys - queries :], positions[None]
    return layer.attend(query, key, value, places, blocks, scaling)


def _strip(layout: Layout, rows: slice, neighbours: int) -> Block:
    """What the last queries of a row see, all of them after its context, near and far."""
    seen = layout.strip(rows.stop - rows.start)
    positions = layout.positions
    back = positions[-len(seen) :, None] - positions
    reach = layout.longest - neighbours  # no place from here on is far from any
    far = slice(0, len(positions) if reach > layout.context else max(0, reach))
    near = slice(max(0, layout.context - neighbours + 1), len(positions))
    parts = (seen & (back >= neighbours))[:, far], (seen & (back < neighbours))[:, near]
    return Block(rows, far, near, torch.cat(parts, dim=1))


def _continued_attention(
    query: Tensor, key: Tensor, value: Tensor, scaling: float | None
) -> Iterator[Tensor]:
    """Causal attention of a context's last tokens, few at a time so that masks stay small."""
    queries, keys = query.shape[2], key.shape[2]
    few = few_queries(query.shape[1], key.shape[1], keys)
    for start in range(0, queries, few):
        end = min(start + few, queries)
        seen = keys - queries + end
        mask = query.new_ones(end - start, seen, dtype=torch.bool).tril(keys - queries + start)
        yield strip_attention(
            query[:, :, start:end], key[:, :, :seen], value[:, :, :seen], mask, scaling
        )


AttentionInterface.register(_NAME, _attention)


@contextmanager
def packed_attention(network: PreTrainedModel) -> Iterator[None]:
    """Let the network attend by packed rows inside the block (`packed_pass` names them)."""
    before = network.config._attn_implementation
    network.set_attn_implementation(_NAME)
    try:
        yield
    finally:
        network.set_attn_implementation(before)


@contextmanager
def packed_pass(*segments: Segment) -> Iterator[None]:
    """Say which rows the passes inside the block belong to, the backward pass included."""
    _PASS.append(segments)
    try:
        yield
    finally:
        _PASS.pop()


def running() -> Sequence[Segment]:
    """What the pass that is being run holds of each packed row."""
    return _PASS[-1]


_SHARES: WeakKeyDictionary[PreTrainedModel, bool] = WeakKeyDictionary()


def shares_context(network: PreTrainedModel) -> bool:
    """Whether packed rows give what ordinary rows give; tried out once for each network.

    Not so for windowed, chunked and recurrent layers, for position biases that go by place in the
    row, and for models that do not take the attention interface: those run ordinary rows.
    """
    if network not in _SHARES:
        _SHARES[network] = attends_to_everything(network.config) and _packs_exactly(network)
    return _SHARES[network]


@torch.no_grad()
def _packs_exactly(network: PreTrainedModel) -> bool:
    """Compare last logits of two blocks: in ordinary rows, and in a packed one run in some ways."""
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
        ways = [_in_steps(network, row, steps) for steps in ((), (23,), (9, 23))]
    except (RuntimeError, ValueError, TypeError, KeyError, AttributeError, AssertionError):
        return False  # this family does not go through the interface
    return all(alike(network, way, torch.stack(ordinary)) for way in ways)


def _in_steps(network: PreTrainedModel, row: PackedRow, steps: Sequence[int]) -> Tensor:
    """Last logits of the blocks, the row run up to each of `steps` first, then to its end.

    What one step keeps, the next goes on from in a memory of its own.
    """
    total, done = row.tokens.shape[1], 0
    memory = Memory(total) if steps else None
    with packed_attention(network):
        for step in steps:
            assert memory is not None
            memory = memory.start(done, total, last=False)
            part = Segment(Layout(step, row.layout.blocks[:0]), step - done, memory)
            with packed_pass(part):
                tokens, positions = row.tokens[:, done:step], row.positions[:, done:step]
                logits_of(network, tokens, positions, row.ends[:0])
            done = step
        with packed_pass(Segment(row.layout, total - done, memory)):
            tokens, positions = row.tokens[:, done:], row.positions[:, done:]
            return logits_of(network, tokens, positions, row.ends - done)


def logits_of(
    network: PreTrainedModel, tokens: Tensor, positions: Tensor, places: Tensor
) -> Tensor:
    """Logits at `places` of one row: `(n_places, vocabulary)`; `lm_head` sees no others."""
    logits: Tensor = network(
        input_ids=tokens, position_ids=positions, logits_to_keep=places, use_cache=False
    ).logits
    return logits[0]
