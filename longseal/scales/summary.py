"""What an adapter is, in numbers: for `longseal adapter show`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from longseal.scales.adapter import Adapter


@dataclass(frozen=True)
class HeadChange:
    """How one head is scaled; the whole layer where heads are not known.

    Attributes:
        head: its number in the layer; None where heads are not known.
        scale: mean scale of its channels.
        change: root mean square of its channels' `scale - 1`.
    """

    layer: int
    head: int | None
    scale: float
    change: float


@dataclass(frozen=True)
class Summary:
    """What stands in an adapter.

    Attributes:
        written_by: `longseal`, or `PEFT` where it alone wrote the adapter.
        fingerprint: whether another base than its own is refused.
        layers: how many layers are scaled.
        heads: heads of each of these layers; None where they are not known.
        count: how many numbers were learned.
        smallest, largest, mean: over the scales of all channels.
        most_changed: the heads that are changed most, first the most changed one.
        made: what the record says of how it was made: task, lengths, seed, versions.
        parts: of a product, each part's strength, kind and task.
    """

    kind: str
    base: str
    written_by: str
    fingerprint: bool
    layers: int
    heads: tuple[int, ...] | None
    count: int
    smallest: float
    largest: float
    mean: float
    most_changed: tuple[HeadChange, ...]
    made: Mapping[str, Any]
    parts: tuple[Mapping[str, Any], ...]


def summary(adapter: Adapter, *, most: int = 5) -> Summary:
    """Sum an adapter up, with its `most` most changed heads."""
    scales = adapter.scales
    known = adapter.heads_known
    changes = [
        HeadChange(
            head.layer,
            head.head if known else None,
            values.mean().item(),
            (values - 1).square().mean().sqrt().item(),
        )
        for head, values in scales.by_head.items()
    ]
    changes.sort(key=lambda change: -change.change)
    everything = torch.cat([scales.scale(site) for site in scales.sites])
    return Summary(
        kind=adapter.kind,
        base=adapter.base,
        written_by="longseal" if known else "PEFT",
        fingerprint=adapter.base_fingerprint is not None,
        layers=len(scales.sites),
        heads=tuple(site.n_heads for site in scales.sites) if known else None,
        count=scales.count,
        smallest=float(everything.min()),
        largest=float(everything.max()),
        mean=float(everything.double().mean()),
        most_changed=tuple(changes[:most]),
        made=made_of(adapter.record),
        parts=tuple(
            {"strength": part["strength"], "kind": part["kind"], **made_of(part["record"])}
            for part in _list(adapter.record.get("parts"))
        ),
    )


def made_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """What a record says of how an adapter was made, as far as it says it."""
    settings = record.get("settings")
    settings = settings if isinstance(settings, Mapping) else {}
    found = {
        "task": record.get("task"),
        **{name: record.get(name) for name in ("window", "extend")},
        **{name: settings.get(name) for name in ("length", "train_length", "seed")},
        "versions": record.get("versions"),
    }
    return {name: value for name, value in found.items() if value is not None}


def _list(parts: object) -> list[Mapping[str, Any]]:
    return [
        part
        for part in (parts if isinstance(parts, list) else [])
        if isinstance(part, Mapping)
        and {"strength", "kind", "record"} <= part.keys()
        and isinstance(part["record"], Mapping)
        and isinstance(part["strength"], int | float)
    ]
