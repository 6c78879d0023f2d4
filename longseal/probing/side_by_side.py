"""Variants of a model side by side in one pass; what is below their first difference is shared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import PreTrainedModel

from longseal.models.arguments import last_logits, ordinary_tokens
from longseal.models.instead import instead
from longseal.models.layers import layers_of, place_of
from longseal.models.rounding import alike
from longseal.models.sites import Site
from longseal.probing.heads import Variant
from longseal.scales.hooks import scaling

_LENGTH = 11  # tokens of the passes that are tried out


class SideBySide:
    """Passes over one row again and again, each time with other variants of the model.

    The row is a batch of one up to the first site that a variant scales. There it becomes a batch
    with a row a variant: a layer's attention serves all of its heads. Layers below are not run
    again, as long as the variants come in the order of that site.
    """

    def __init__(self, network: PreTrainedModel, sites: Sequence[Site]) -> None:
        self._network, self._sites = network, sites
        self._layers = layers_of(network, sites)
        self._place = {site.name: place_of(site) for site in sites}
        self._parts: dict[int, int] = {}  # how many values a layer returns; 0 for a bare tensor
        self._at = 0  # below this layer nothing is run again: this goes into it
        self._hidden: Tensor | None = None

    @torch.no_grad()
    def logits(self, run: Callable[[], Tensor], variants: Sequence[Variant]) -> Tensor:
        """Logits of every variant: `(n_variants, n_places, vocabulary)`.

        Args:
            run: a pass over the row, as `answer_pass` gives it: `(batch, n_places, vocabulary)`.
            variants: each scales one site at least.
        """
        cut = min(map(self.lowest, variants))
        if cut < self._at:
            self._at, self._hidden = 0, None
        seen: dict[str, Tensor] = {}
        with ExitStack() as stack:
            for place in range(cut + 1):
                call = partial(self._below, place, cut, seen)
                stack.enter_context(instead(self._layers[place], call))
            stack.enter_context(scaling(self._network, self._factors(variants)))
            logits = run()
        self._at, self._hidden = cut, seen["input"]
        return logits

    def _below(
        self,
        place: int,
        cut: int,
        seen: dict[str, Tensor],
        forward: Callable[..., Any],
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """A layer at or below the cut: skipped where its output is known or not needed."""
        if place < self._at:
            parts = self._parts[place]
            return (self._hidden, *[None] * (parts - 1)) if parts else self._hidden
        if place == cut:
            seen["input"] = args[0] if args else kwargs["hidden_states"]
        given = forward(*args, **kwargs)
        self._parts[place] = len(given) if isinstance(given, tuple) else 0
        return given

    def lowest(self, variant: Variant) -> int:
        """The place of the first layer that a variant scales."""
        return min(self._place[name] for name in variant.factors)

    def _factors(self, variants: Sequence[Variant]) -> Mapping[str, Callable[[Tensor], Tensor]]:
        """By site name, the factors of all variants: `(n_variants, 1, channels)`."""
        lowest = min((name for v in variants for name in v.factors), key=self._place.__getitem__)
        found = {}
        for site in self._sites:
            own = [variant.factors.get(site.name) for variant in variants]
            if site.name == lowest or any(factor is not None for factor in own):
                ones = torch.ones(site.channels)
                rows = torch.stack([ones if factor is None else factor for factor in own])
                found[site.name] = _constant(rows[:, None].to(self._network.device))
        return found


def _constant(factor: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda _: factor


_RUNS: WeakKeyDictionary[PreTrainedModel, bool] = WeakKeyDictionary()


def runs_side_by_side(network: PreTrainedModel, sites: Sequence[Site]) -> bool:
    """Whether variants side by side give what each by itself gives; tried out once a network.

    Not so where layers pass more to one another than one hidden state, or lie in several lists.
    """
    if network not in _RUNS:
        try:
            _RUNS[network] = _agrees(network, sites)
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError):
            _RUNS[network] = False
    return _RUNS[network]


@torch.no_grad()
def _agrees(network: PreTrainedModel, sites: Sequence[Site]) -> bool:
    tokens = ordinary_tokens(network, _LENGTH)
    keep = last_logits(network, 1)

    def run() -> Tensor:
        logits: Tensor = network(input_ids=tokens, **keep, use_cache=False).logits
        return logits[:, -1:]

    passes = SideBySide(network, sites)
    for site in dict.fromkeys([sites[0], sites[len(sites) // 2], sites[-1]]):
        pair = []
        for number in (0, site.n_heads - 1):
            factor = torch.ones(site.n_heads, site.width)
            factor[number] = 0.25
            pair.append(Variant(str(number), {site.name: factor.flatten()}))
        found = passes.logits(run, pair)
        for variant, logits in zip(pair, found, strict=True):
            with variant.attached(network):
                if not alike(network, logits, run()[0]):
                    return False
    return True
