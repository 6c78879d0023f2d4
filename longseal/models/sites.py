"""Where each attention head's output meets the output projection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class ValueRows:
    """Which rows of which projection give the values of a site's heads.

    Attributes:
        name: path of the module whose output holds the values (`v_proj`, a fused `c_attn` ...).
        output_axis: axis of its stored weight that holds the output (Linear 0, Conv1D 1).
        first: for each query head the first of its `width` consecutive rows; heads of one group
            share them.
    """

    name: str
    output_axis: int
    first: tuple[int, ...]


@dataclass(frozen=True)
class Site:
    """A layer's output projection, as longseal scales it.

    Attributes:
        name: the projection's module path, e.g. `model.layers.0.self_attn.o_proj`.
        layer: index of the decoder layer.
        n_heads, n_kv_heads: query heads and key-value heads.
        width: channels of one head's output; `n_heads * width` is the projection's input size.
        input_axis: axis of the stored weight that holds the input (Linear 1, Conv1D 0).
        values: where the heads' values come from, or why scales cannot be folded there.
    """

    name: str
    layer: int
    n_heads: int
    n_kv_heads: int
    width: int
    input_axis: int
    values: ValueRows | str = "where its values come from is not known"

    @property
    def weight(self) -> str:
        """Name of the projection's weight in the model's state dict."""
        return f"{self.name}.weight"

    @property
    def channels(self) -> int:
        """Input size of the projection."""
        return self.n_heads * self.width


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


def seats(sites: Sequence[Site]) -> dict[Head, tuple[Site, int]]:
    """Every head of these sites, in order: its site, and which of that site's heads it is.

    A few families have two attentions in a layer: their heads count on.
    """
    found: dict[Head, tuple[Site, int]] = {}
    known = Counter[int]()
    for site in sites:
        for number in range(site.n_heads):
            found[Head(site.layer, known[site.layer] + number)] = site, number
        known[site.layer] += site.n_heads
    return found


@dataclass(frozen=True)
class Structure:
    """The sites of a network in layer order, and the layers that have none, with the reason."""

    sites: tuple[Site, ...]
    skipped: Mapping[int, str]

    def by_reason(self) -> dict[str, str]:
        """The skipped layers as one phrase, such as "0-2, 4", for each reason."""
        groups: dict[str, list[int]] = {}
        for layer, reason in sorted(self.skipped.items()):
            groups.setdefault(reason, []).append(layer)
        return {reason: _ranges(layers) for reason, layers in groups.items()}


def _ranges(numbers: list[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
