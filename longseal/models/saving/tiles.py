"""MLPs a tile of tokens at a time, so that the wide activations never exist for a whole row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from transformers import PreTrainedModel

from longseal.models.rounding import alike

_TILES = 8  # a row is cut into so many, whatever its length: memory stays in proportion to tokens
_TRIED = 6  # tokens


def wide_parts(network: PreTrainedModel, layer: nn.Module) -> Iterator[nn.Module]:
    """The parts of a layer that treat each token by itself and have matrices: its MLP.

    Tried out, so that no family's names have to be known.
    """
    for part in layer.children():
        matrices = any(parameter.ndim > 1 for parameter in part.parameters())
        learned = any(parameter.requires_grad for parameter in part.parameters())
        if matrices and not learned and _by_token(network, part):
            yield part


@torch.no_grad()
def _by_token(network: PreTrainedModel, part: nn.Module) -> bool:
    """Whether a part gives each token the same in a row and in pieces of the row."""
    width = getattr(network.config.get_text_config(decoder=True), "hidden_size", None)
    if not isinstance(width, int):
        return False
    random = torch.Generator().manual_seed(0)
    row = torch.randn(1, _TRIED, width, generator=random).to(network.device, network.dtype)
    try:
        whole, pieces = part(row), [part(piece) for piece in row.chunk(2, dim=1)]
    except (AttributeError, IndexError, LookupError, RuntimeError, TypeError, ValueError):
        return False
    if not all(isinstance(found, Tensor) for found in (whole, *pieces)):
        return False
    joined = torch.cat(pieces, dim=1)
    return whole.shape == joined.shape == row.shape and alike(network, joined, whole)


def tiled(forward: Callable[[Tensor], Tensor], hidden: Tensor) -> Tensor:
    """An MLP's pass over `(1, tokens, hidden)`, tile by tile, forwards and backwards."""
    if not (torch.is_grad_enabled() and hidden.requires_grad):
        return _in_tiles(forward, hidden)
    held: Tensor = _Held.apply(hidden)  # type: ignore[no-untyped-call]
    made: Tensor = _Tiled.apply(held, held.grad_fn, forward)  # type: ignore[no-untyped-call]
    return made


def _in_tiles(forward: Callable[[Tensor], Tensor], hidden: Tensor) -> Tensor:
    made = torch.empty_like(hidden)
    for out, piece in zip(_tiles(made), _tiles(hidden), strict=True):
        out.copy_(forward(piece))
    return made


def _tiles(row: Tensor) -> tuple[Tensor, ...]:
    return row.chunk(_TILES, dim=-2)


class _Held(Function):
    """Keeps the input of an MLP.

    A function of its own that comes before the MLP: a checkpointed layer that is run again stops
    once all it keeps is there, and so need not run the MLP as well.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor) -> Tensor:
        ctx.save_for_backward(hidden)
        return hidden.view_as(hidden)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0]


class _Tiled(Function):
    """An MLP of frozen weights; its backward pass runs each tile again from the held input."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, held: Any, run: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.held, ctx.run = held, run
        return _in_tiles(run, hidden)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (hidden,) = ctx.held.saved_tensors
        found = torch.empty_like(hidden)
        rows = (_tiles(row) for row in (found, hidden, gradients[0]))
        for into, piece, gradient in zip(*rows, strict=True):
            with torch.enable_grad():
                leaf = piece.detach().requires_grad_()
                out = ctx.run(leaf)
            into.copy_(torch.autograd.grad(out, leaf, gradient)[0])
        return found, None, None
