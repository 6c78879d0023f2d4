"""Turn queries and keys, as the model turned them, on to the positions of their groups.

They arrive turned to their own positions p by the model's own code. Turned on by the difference
to a group's position g they are what the model would have made of them at g. Both angles are taken
from the model's own tables, so whatever scales or rounds them is in both.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from longseal.models.context.rotary import Rotary


@dataclass(frozen=True)
class Style:
    """Which channels of a head are turned, and which two of them together.

    Attributes:
        start, pairs: `2 * pairs` channels from `start` on.
        adjacent: channel 2i goes with 2i + 1; else with the one `pairs` further on.
        columns: where the tables hold a pair's angle: "half" the first half of their columns,
            "even" every other one, "all" each.
    """

    start: int
    pairs: int
    adjacent: bool
    columns: str

    def angles(self, table: Tensor) -> Tensor:
        """Of a table's columns, one a pair."""
        if self.columns == "even":
            return table[..., ::2]
        return table[..., : self.pairs]

    def turned(self, heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Turn `(batch, heads, tokens, head_dim)` by angles `(batch or 1, tokens, pairs)`.

        Computed in float32 at least, and rounded once.
        """
        end = self.start + 2 * self.pairs
        wide = torch.promote_types(heads.dtype, torch.float32)
        part = heads[..., self.start : end].to(wide)
        cos, sin = cos[:, None].to(wide), sin[:, None].to(wide)
        if self.adjacent:
            a, b = part[..., ::2], part[..., 1::2]
            new = torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)
        else:
            a, b = part.chunk(2, dim=-1)
            new = torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)
        new = new.to(heads.dtype)
        if new.shape == heads.shape:
            return new
        return torch.cat([heads[..., : self.start], new, heads[..., end:]], dim=-1)


def styles(columns: int, head_dim: int) -> list[Style]:
    """All that a model with tables of so many columns may do."""
    found = []
    for name, pairs in (("half", columns // 2), ("even", columns // 2), ("all", columns)):
        for start in sorted({0, head_dim - 2 * pairs}) if 2 * pairs <= head_dim else ():
            found += [Style(start, pairs, adjacent, name) for adjacent in (False, True)]
    return found


class Turns:
    """By position, how far keys and queries are turned on: cosines and sines, float32.

    Grouped positions are whole numbers: `p // group` of a key, and of a query `p // group +
    neighbours - neighbours // group`, so that far keys follow on near ones.
    """

    def __init__(self, rotary: Rotary, style: Style, group: int, neighbours: int) -> None:
        self._rotary, self._style, self._group = rotary, style, group
        self._shift = neighbours - neighbours // group
        self._known: tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]] | None = None

    def keys(self, heads: Tensor, positions: Tensor) -> Tensor:
        """Keys `(batch, n_kv_heads, tokens, head_dim)` at positions `(batch or 1, tokens)`."""
        return self._turned(heads, positions, 0)

    def queries(self, heads: Tensor, positions: Tensor) -> Tensor:
        """Queries `(batch, n_heads, tokens, head_dim)` at positions `(batch or 1, tokens)`."""
        return self._turned(heads, positions, 1)

    def _turned(self, heads: Tensor, positions: Tensor, which: int) -> Tensor:
        cos, sin = self._reach(int(positions.max()) + 1, heads.device)[which]
        return self._style.turned(heads, cos[positions], sin[positions])

    def _reach(self, length: int, device: torch.device) -> tuple[tuple[Tensor, Tensor], ...]:
        known = self._known
        if known is None or len(known[0][0]) < length or known[0][0].device != device:
            own = torch.arange(-(-length // 1024) * 1024, device=device)
            group = own // self._group
            known = self._known = self._from(own, group), self._from(own, group + self._shift)
        return known

    def _from(self, own: Tensor, to: Tensor) -> tuple[Tensor, Tensor]:
        """Angles of `to` minus those of `own`."""
        (a_cos, a_sin), (b_cos, b_sin) = map(self._at, (own, to))
        return b_cos * a_cos + b_sin * a_sin, b_sin * a_cos - b_cos * a_sin

    def _at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines without what some kinds multiply them by."""
        with torch.inference_mode(False), torch.no_grad():  # what is kept serves training too
            cos, sin = map(self._style.angles, self._rotary.tables(positions))
        radius = (cos.square() + sin.square()).sqrt()
        return cos / radius, sin / radius
