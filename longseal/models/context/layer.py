"""What Self-Extend does in one attention layer, whoever runs it."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

from torch import Tensor, nn

from longseal.models.context.turning import Turns
from longseal.models.context.two_levels import Blocks, two_level_attention


@dataclass(frozen=True, eq=False)
class ExtendedLayer:
    """Near keys are met at their own positions, far ones at those of their groups.

    Attributes:
        neighbours: keys are far from this many tokens on.
        turns: None where the layer has no positions: near and far are the same to it.
    """

    neighbours: int
    turns: Turns | None

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        positions: tuple[Tensor, Tensor],
        blocks: Blocks,
        scaling: float | None,
    ) -> Tensor:
        """Attend by blocks.

        Args:
            query: `(batch, n_heads, queries, head_dim)`, as the model turned it.
            key, value: `(batch, n_kv_heads, keys, head_dim)`, so too.
            positions: of the queries and of the keys, `(batch or 1, tokens)` int64.

        Returns:
            `(batch, queries, n_heads, head_dim)`.
        """
        far_query, far_key = self.far(query, key, positions)
        return two_level_attention((query, far_query), (key, far_key), value, blocks, scaling)

    def far(
        self, query: Tensor, key: Tensor, positions: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Queries and keys as they meet where they are far from each other; see `attend`."""
        if self.turns is None:
            return query, key
        return self.turns.queries(query, positions[0]), self.turns.keys(key, positions[1])


_LAYERS: WeakKeyDictionary[nn.Module, ExtendedLayer] = WeakKeyDictionary()


def extended_layer(module: nn.Module) -> ExtendedLayer | None:
    """What Self-Extend does in that attention module; None where the model is not so extended."""
    return _LAYERS.get(module)


def set_extended_layer(module: nn.Module, layer: ExtendedLayer | None) -> None:
    """Let that attention module be extended so, or no longer."""
    if layer is None:
        _LAYERS.pop(module, None)
    else:
        _LAYERS[module] = layer
