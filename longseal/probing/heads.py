"""Heads by name, alone and in groups: L1H18, a layer L5, a key-value group L5G2."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import BeforeValidator, PlainSerializer
from torch import Tensor
from transformers import PreTrainedModel

from longseal.errors import LongsealError
from longseal.models.sites import Site
from longseal.scales.hooks import Factor, scaling

_NAME = re.compile(r"L(\d+)(?:([HG])(\d+))?", re.IGNORECASE)


@dataclass(frozen=True, order=True)
class Head:
    """A query head, both numbers counted from 0."""

    layer: int
    head: int

    def __str__(self) -> str:
        return f"L{self.layer}H{self.head}"

    @classmethod
    def of(cls, name: str) -> Head:
        """The head that a name such as L1H18 is of; a ValueError where it is none."""
        layer, _, head = name.removeprefix("L").partition("H")
        return cls(int(layer), int(head))


#: A head that JSON has by its name.
HeadName = Annotated[
    Head,
    BeforeValidator(lambda given: Head.of(given) if isinstance(given, str) else given),
    PlainSerializer(str),
]


@dataclass(frozen=True)
class Variant:
    """The model with some scales other than 1.

    Attributes:
        name: what it is called, such as the pruned head.
        factors: by site name, what the projection's input is multiplied by: `(channels,)`, float32.
        parts: names of the heads, or of the channel, that it scales.
    """

    name: str
    factors: Mapping[str, Tensor]
    parts: tuple[str, ...] = ()

    @contextmanager
    def attached(self, network: PreTrainedModel, start: int = 0) -> Iterator[None]:
        """Scale the network so inside the block, from the place `start` of a row on."""
        factors = {
            name: _from(start, factor.to(network.device)) for name, factor in self.factors.items()
        }
        with scaling(network, factors):
            yield


def _from(start: int, factor: Tensor) -> Factor:
    def of(hidden: Tensor) -> Tensor:
        rows = factor.expand(hidden.shape[-2], -1).clone()
        rows[:start] = 1.0
        return rows

    return of if start else lambda _: factor


def heads_of(sites: Sequence[Site]) -> list[Head]:
    """Every head that can be scaled, in order."""
    return [Head(site.layer, head) for site in sites for head in range(site.n_heads)]


def named(names: str, sites: Sequence[Site]) -> list[Head]:
    """The heads of "L1H18,L13H16", of a whole layer ("L5") or of a key-value group ("L5G2").

    Raises:
        LongsealError: there is no such head; the ranges that there are stand in the message.
    """
    found = dict.fromkeys(head for name in names.split(",") for head in _named(name.strip(), sites))
    return list(found)


def _named(name: str, sites: Sequence[Site]) -> Iterator[Head]:
    match = _NAME.fullmatch(name)
    if match is None:
        raise LongsealError(
            f"{name!r} names no head: write L1H18, L5 for a whole layer, or L5G2 for the heads of "
            "one key-value head"
        )
    layer, kind, number = int(match[1]), (match[2] or "").upper(), int(match[3] or 0)
    site = next((site for site in sites if site.layer == layer), None)
    if site is None:
        raise LongsealError(f"{name}: the layers with heads are {_layers(sites)}")
    count = {"H": site.n_heads, "G": site.n_kv_heads}.get(kind, 1)
    if number >= count:
        what = "heads" if kind == "H" else "key-value groups"
        raise LongsealError(f"{name}: layer {layer} has {what} {kind}0 to {kind}{count - 1}")
    size = {"H": 1, "G": site.n_heads // site.n_kv_heads}.get(kind, site.n_heads)
    yield from (Head(layer, head) for head in range(number * size, (number + 1) * size))


def _layers(sites: Sequence[Site]) -> str:
    numbers = [site.layer for site in sites]
    whole = numbers == list(range(numbers[0], numbers[-1] + 1))
    return f"L{numbers[0]} to L{numbers[-1]}" if whole else ", ".join(f"L{n}" for n in numbers)


def scaled(name: str, heads: Mapping[Head, float], sites: Sequence[Site]) -> Variant:
    """The model with these heads' scales set; 0 prunes a head."""
    factors = {}
    for site in sites:
        mine = {each.head: scale for each, scale in heads.items() if each.layer == site.layer}
        if mine:
            scales = torch.ones(site.n_heads, site.width)
            for head, scale in mine.items():
                scales[head] = scale
            factors[site.name] = scales.flatten()
    return Variant(name, factors, tuple(map(str, heads)))


def pruned(heads: Sequence[Head], sites: Sequence[Site], name: str = "") -> Variant:
    """The model without these heads."""
    return scaled(name or ",".join(map(str, heads)), dict.fromkeys(heads, 0.0), sites)


def without_channel(head: Head, channel: int, sites: Sequence[Site]) -> Variant:
    """The model without one channel of a head; 0 is the head's first."""
    site = next(site for site in sites if site.layer == head.layer)
    scales = torch.ones(site.n_heads, site.width)
    scales[head.head, channel] = 0.0
    name = f"{head}C{channel}"
    return Variant(name, {site.name: scales.flatten()}, (name,))
