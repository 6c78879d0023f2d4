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
from torch.nn import functional
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from longseal.models.arguments import takes, vocabulary_size
from longseal.models.packed_row import Layout, Memory, PackedRow, Segment

_NAME = "longseal_shared_context"

#: A context that goes on from a kept start is run by so many queries at a time (fastest on a CPU),
#: or fewer where their mask would have more entries than this.
QUERIES, MASK = 256, 2**26

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
        yield _strip_attention(query, key, value, mask, scaling)


def _continued_attention(
    query: Tensor, key: Tensor, value: Tensor, scaling: float | None
) -> Iterator[Tensor]:
    """Causal attention of a context's last tokens, few at a time so that masks stay small."""
    queries, keys = query.shape[2], key.shape[2]
    group = query.shape[1] // key.shape[1]
    few = max(1, min(QUERIES, MASK // (group * keys)))
    for start in range(0, queries, few):
        end = min(start + few, queries)
        seen = keys - queries + end
        mask = query.new_ones(end - start, seen, dtype=torch.bool).tril(keys - queries + start)
        yield _strip_attention(
            query[:, :, start:end], key[:, :, :seen], value[:, :, :seen], mask, scaling
        )


def _strip_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scaling: float | None
) -> Tensor:
    """Attention of few queries; the heads of a group stand side by side, so no key is copied."""
    batch, n_heads, queries, _ = query.shape
    n_kv_heads = key.shape[1]
    group = n_heads // n_kv_heads
    grouped = query.reshape(batch, n_kv_heads, group * queries, query.shape[-1])
    out = functional.scaled_dot_product_attention(
        grouped, key, value, attn_mask=mask.repeat(group, 1), scale=scaling
    )
    return out.reshape(batch, n_heads, queries, value.shape[-1]).transpose(1, 2)


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
        _SHARES[network] = _attends_to_everything(network) and _packs_exactly(network)
    return _SHARES[network]


def _attends_to_everything(network: PreTrainedModel) -> bool:
    config = network.config.get_text_config(decoder=True)
    kinds = getattr(config, "layer_types", None)
    if kinds:
        return set(kinds) == {"full_attention"}
    windowed = getattr(config, "sliding_window", None)
    return not (windowed and getattr(config, "use_sliding_window", True))


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


def alike(network: PreTrainedModel, found: Tensor, expected: Tensor) -> bool:
    """Whether logits differ by no more than the network's rounding."""
    found, expected = found.float(), expected.float()
    tolerance = (1e-3 if network.dtype == torch.float32 else 0.1) * expected.std()
    return bool((found - expected).abs().max() <= tolerance)


def logits_of(
    network: PreTrainedModel, tokens: Tensor, positions: Tensor, places: Tensor
) -> Tensor:
    """Logits at `places` of one row: `(n_places, vocabulary)`; `lm_head` sees no others."""
    logits: Tensor = network(
        input_ids=tokens, position_ids=positions, logits_to_keep=places, use_cache=False
    ).logits
    return logits[0]
