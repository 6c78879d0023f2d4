"""The module of a network that gives cosines and sines of positions, found by watching a pass.

No name of a class or module is relied on: it takes whole numbers, one a token, and gives two tables
of which every pair lies on one circle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from longseal.models.arguments import ordinary_tokens

_LENGTH = 13  # tokens of the pass that is watched


@dataclass(frozen=True, eq=False)
class Rotary:
    """A rotary module, and how it is called.

    Attributes:
        name: its path.
        given: the arguments of a call, the positions as None.
    """

    name: str
    module: nn.Module
    given: tuple[tuple[Any, ...], Mapping[str, Any]]

    @torch.no_grad()
    def tables(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """What it gives for positions `(n,)`: cosines and sines `(n, columns)`, float32."""
        places = positions[None]
        blank = torch.zeros(1, 1, 1, device=positions.device)  # tells it device and dtype

        def argument(value: Any) -> Any:
            if value is None:
                return places
            return blank if isinstance(value, Tensor) else value

        arguments, named = self.given
        cos, sin = self.module(
            *map(argument, arguments), **{name: argument(v) for name, v in named.items()}
        )
        return cos[0], sin[0]

    def frequencies(self, length: int, device: torch.device) -> Tensor:
        """Radians a position in a row of `length` tokens, `(pairs,)` float32, fastest first."""
        cos, sin = self.tables(torch.tensor([1, length - 1], device=device))
        angles: Tensor = torch.atan2(sin, cos)[0].unique().flip(0)
        return angles


def find_rotary(network: PreTrainedModel) -> list[Rotary]:
    """The rotary modules that a short pass runs, each with each way it is called."""
    found: dict[tuple[str, str], Rotary] = {}
    with ExitStack() as hooks:
        for name, module in network.named_modules():
            if name:
                hooks.enter_context(_watched(name, module, found))
        with torch.no_grad():
            network(input_ids=ordinary_tokens(network, _LENGTH), use_cache=False)
    return list(found.values())


@contextmanager
def _watched(name: str, module: nn.Module, found: dict[tuple[str, str], Rotary]) -> Iterator[None]:
    def see(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        if not _circles(out):
            return
        given = tuple(map(_blanked, args)), {key: _blanked(v) for key, v in kwargs.items()}
        values = [*given[0], *given[1].values()]
        if values.count(None) == 1:
            words = repr([v for v in values if isinstance(v, str)])  # such as a kind of layer
            found.setdefault((name, words), Rotary(name, module, given))

    handle = module.register_forward_hook(see, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


def _blanked(value: Any) -> Any:
    """An argument without what changes from pass to pass: None for positions."""
    if not isinstance(value, Tensor):
        return "" if value is None else value
    whole = not value.is_floating_point() and value.ndim == 2
    return None if whole and value.shape[-1] == _LENGTH else _TENSOR


_TENSOR = torch.empty(0)


def _circles(out: Any) -> bool:
    """Whether it is two tables, `(batch, tokens, columns)`, whose pairs lie on one circle."""
    if not (isinstance(out, tuple | list) and len(out) == 2):
        return False
    if not all(isinstance(t, Tensor) and t.is_floating_point() and t.ndim == 3 for t in out):
        return False
    cos, sin = (t.float() for t in out)
    if cos.shape != sin.shape or cos.shape[1] != _LENGTH:
        return False
    radius = cos.square() + sin.square()
    return bool((radius - radius.mean()).abs().max() <= 0.02 * radius.mean())
