"""Where each attention head's output meets the output projection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.pytorch_utils import Conv1D

from longseal.errors import LongsealError
from longseal.models.families import ATTENTION_WORDS, OUTPUT_PROJECTIONS


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


def find_sites(network: PreTrainedModel) -> tuple[Site, ...]:
    """Find every attention layer's output projection, in layer order.

    A site is a Linear or Conv1D that carries a usual output projection's name, sits directly in an
    attention module of a decoder layer, and whose input is a whole number of channels a head.

    Raises:
        LongsealError: no layer has such a module.
    """
    config = network.config.get_text_config(decoder=True)
    found: dict[int, Site] = {}
    for path, module in network.named_modules():
        layer = _layer_index(path)
        if layer is None or not any(word in path.split(".")[-1] for word in ATTENTION_WORDS):
            continue
        site = _site(path, module, layer, config)
        if site is not None and layer not in found:
            found[layer] = site
    if not found:
        raise LongsealError(
            f"no attention output projection was found in {type(network).__name__}: "
            "this architecture is not supported"
        )
    return tuple(found[layer] for layer in sorted(found))


def _layer_index(path: str) -> int | None:
    numbers = [part for part in path.split(".") if part.isdigit()]
    return int(numbers[0]) if len(numbers) == 1 else None


def _site(path: str, module: nn.Module, layer: int, config: PreTrainedConfig) -> Site | None:
    for name in OUTPUT_PROJECTIONS:
        projection = getattr(module, name, None)
        if not isinstance(projection, nn.Linear | Conv1D):
            continue
        inputs = projection.in_features if isinstance(projection, nn.Linear) else projection.nx
        n_heads = _count(module, config, "num_heads", "num_attention_heads")
        if n_heads is None or inputs % n_heads:
            continue
        n_kv_heads = _count(module, config, "num_key_value_heads", "num_kv_heads") or n_heads
        axis = 1 if isinstance(projection, nn.Linear) else 0
        return Site(f"{path}.{name}", layer, n_heads, n_kv_heads, inputs // n_heads, axis)
    return None


def _count(module: nn.Module, config: PreTrainedConfig, *names: str) -> int | None:
    """The first of `names` that the module, or else the config, gives as a whole number."""
    for owner in (module, config):
        for name in names:
            value: Any = getattr(owner, name, None)
            if isinstance(value, int) and value > 0:
                return value
    return None
