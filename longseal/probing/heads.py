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
from longseal.models.sites import Head, Site, seats
from longseal.scales.hooks import Factor, scaling

_NAME = re.compile(r"L(\d+)(?:([HG])(\d+))?", re.IGNORECASE)


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


def named(names: str, sites: Sequence[Site]) -> list[Head]:
    """The heads of "L1H18,L13H16", of a whole layer ("L5") or of a key-value group ("L5G2").

    Raises:
        LongsealError: there is no such head; the ranges that there are stand in the message.
    """
    found = dict.fromkeys(head for name in names.split(",") for head in _named(name.strip(), sites))
    return list(found)


def _named(name: str, sites: Sequence[Site]) -> Sequence[Head]:
    match = _NAME.fullmatch(name)
    if match is None:
        raise LongsealError(
            f"{name!r} names no head: write L1H18, L5 for a whole layer, or L5G2 for the heads of "
            "one key-value head"
        )
    layer, kind, number = int(match[1]), (match[2] or "").upper(), int(match[3] or 0)
    heads = [head for head in seats(sites) if head.layer == layer]
    if not heads:
        raise LongsealError(f"{name}: the layers with heads are {_layers(sites)}")
    if not kind:
        return heads
    sizes = [1] * len(heads)
    if kind == "G":
        mine = [site for site in sites if site.layer == layer]
        sizes = [site.n_heads // site.n_kv_heads for site in mine for _ in range(site.n_kv_heads)]
    if number >= len(sizes):
        what = "heads" if kind == "H" else "key-value groups"
        raise LongsealError(f"{name}: layer {layer} has {what} {kind}0 to {kind}{len(sizes) - 1}")
    start = sum(sizes[:number])
    return heads[start : start + sizes[number]]


def _layers(sites: Sequence[Site]) -> str:
    numbers = [site.layer for site in sites]
    whole = numbers == list(range(numbers[0], numbers[-1] + 1))
    return f"L{numbers[0]} to L{numbers[-1]}" if whole else ", ".join(f"L{n}" for n in numbers)


def scaled(name: str, heads: Mapping[Head, float], sites: Sequence[Site]) -> Variant:
    """The model with these heads' scales set; 0 prunes a head."""
    of, scales = seats(sites), dict[str, Tensor]()
    for head, scale in heads.items():
        site, number = of[head]
        scales.setdefault(site.name, torch.ones(site.n_heads, site.width))[number] = scale
    factors = {name: rows.flatten() for name, rows in scales.items()}
    return Variant(name, factors, tuple(map(str, heads)))


def pruned(heads: Sequence[Head], sites: Sequence[Site], name: str = "") -> Variant:
    """The model without these heads."""
    return scaled(name or ",".join(map(str, heads)), dict.fromkeys(heads, 0.0), sites)


def without_channel(head: Head, channel: int, sites: Sequence[Site]) -> Variant:
    """The model without one channel of a head; 0 is the head's first."""
    site, number = seats(sites)[head]
    scales = torch.ones(site.n_heads, site.width)
    scales[number, channel] = 0.0
    name = f"{head}C{channel}"
    return Variant(name, {site.name: scales.flatten()}, (name,))
