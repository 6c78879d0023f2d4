"""What a low-rank adapter is, in numbers: for `longseal adapter show`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from longseal.lora.adapter import LoraAdapter
from longseal.scales.summary import made_of


@dataclass(frozen=True)
class ModuleChange:
    """How far one module's weight is moved: Frobenius norm of `alpha / rank * B A`."""

    module: str
    change: float


@dataclass(frozen=True)
class LowRankSummary:
    """What stands in a low-rank adapter.

    Attributes:
        modules: how many modules are adapted.
        count: how many numbers were learned.
        most_changed: the modules whose weights are moved furthest, that one first.
        made: what the record says of how it was made: task, lengths, seed, versions.
    """

    kind: str
    base: str
    rank: int
    alpha: int
    modules: int
    count: int
    most_changed: tuple[ModuleChange, ...]
    made: Mapping[str, Any]


def low_rank_summary(adapter: LoraAdapter, *, most: int = 5) -> LowRankSummary:
    """Sum an adapter up, with its `most` most changed modules."""
    updates = adapter.updates
    changes = [ModuleChange(module, updates.change(module)) for module in updates.modules]
    changes.sort(key=lambda change: -change.change)
    return LowRankSummary(
        kind=adapter.kind,
        base=adapter.base,
        rank=updates.rank,
        alpha=updates.alpha,
        modules=len(changes),
        count=adapter.count,
        most_changed=tuple(changes[:most]),
        made=made_of(adapter.record),
    )
