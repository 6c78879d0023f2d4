"""Self-Extend written out: every score of a row by the paper's formula, in a square, in float64.

Queries and keys come unturned (every position is 0) and are turned here, by the closed formula.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel

NAME = "dense_reference"


@dataclass(frozen=True)
class Dense:
    """The settings, and how the family turns: `width` channels, neighbours or halves in pairs."""

    group: int
    neighbours: int
    theta: float
    width: int
    adjacent: bool = False


_IN_USE: list[tuple[Dense, Tensor]] = []


def turned(heads: Tensor, positions: Tensor, dense: Dense) -> Tensor:
    """Rotary positions, as RoFormer has them."""
    powers = torch.arange(0, dense.width, 2, dtype=torch.float64) / dense.width
    angles = positions[:, None, :, None] * dense.theta**-powers
    part, rest = heads[..., : dense.width], heads[..., dense.width :]
    pairs = part.unflatten(-1, (-1, 2)) if dense.adjacent else part.unflatten(-1, (2, -1)).mT
    turned = torch.view_as_complex(pairs.contiguous()) * torch.polar(
        torch.ones(()).double(), angles
    )
    real = torch.view_as_real(turned)
    return torch.cat([(real if dense.adjacent else real.mT).flatten(-2), rest], dim=-1)


def attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any
) -> tuple[Tensor, None]:
    dense, valid = _IN_USE[-1]
    tokens, groups = query.shape[2], query.shape[1] // key.shape[1]
    key, value = (each.repeat_interleave(groups, dim=1) for each in (key, value))
    own = (valid.cumsum(1) - 1).clamp(min=0)
    near = turned(query, own, dense) @ turned(key, own, dense).mT
    shift = dense.neighbours - dense.neighbours // dense.group
    far_query = turned(query, own // dense.group + shift, dense)
    far = far_query @ turned(key, own // dense.group, dense).mT
    back = torch.arange(tokens)[:, None] - torch.arange(tokens)
    scores = kwargs["scaling"] * torch.where(back < dense.neighbours, near, far)
    seen = ((back >= 0) & valid[:, None].bool()) | (back == 0)
    weights = scores.masked_fill(~seen[:, None], -torch.inf).softmax(-1)
    return (weights @ value).transpose(1, 2), None


AttentionInterface.register(NAME, attend)


@contextmanager
def written_out(network: PreTrainedModel, dense: Dense, valid: Tensor) -> Iterator[None]:
    before = network.config._attn_implementation
    network.set_attn_implementation(NAME)
    _IN_USE.append((dense, valid))
    try:
        yield
    finally:
        _IN_USE.pop()
        network.set_attn_implementation(before)


def dense_logits(
    network: PreTrainedModel, tokens: Tensor, dense: Dense, valid: Tensor | None = None
) -> Tensor:
    valid = torch.ones_like(tokens) if valid is None else valid
    with written_out(network, dense, valid):
        still = torch.zeros_like(tokens)
        logits: Tensor = network(input_ids=tokens, position_ids=still, use_cache=False).logits
    return logits
