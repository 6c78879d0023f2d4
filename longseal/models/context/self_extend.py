"""Turn Self-Extend on, where a model takes it: tried out, not looked up by a name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, DynamicCache, PreTrainedModel

from longseal.config import Extension
from longseal.errors import LongsealError
from longseal.models.arguments import ordinary_tokens, takes
from longseal.models.context.attention import register
from longseal.models.context.layer import ExtendedLayer, set_extended_layer
from longseal.models.context.rotary import Rotary, find_rotary
from longseal.models.context.turning import Style, Turns, styles
from longseal.models.rounding import alike
from longseal.models.windowed import attends_to_everything

_LENGTH = 23  # tokens of the passes that are tried out
_SEEN = "longseal_seen"
#: What a network does that is run in a way it does not know.
_FAILED = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)

#: Queries and keys that reached the attention interface, by module.
Heads = Mapping[nn.Module, tuple[Tensor, Tensor]]

_HEADS: dict[nn.Module, tuple[Tensor, Tensor]] = {}


def self_extend(network: PreTrainedModel, extension: Extension, own: int) -> None:
    """Let a network attend by Self-Extend from here on.

    Args:
        own: the model's own window.

    Raises:
        LongsealError: its layers do not all attend to everything, it does not take the attention
            interface, or turns its queries and keys in a way that cannot be told.
    """
    name = type(network).__name__
    if extension.neighbours >= own:
        raise LongsealError(
            f"{extension}: the neighbours have to be fewer than the window of {own} tokens"
        )
    if not attends_to_everything(network.config):
        raise _refused(name, "some of its layers see a sliding window, a chunk or a state only")
    if not takes(network, "position_ids"):
        raise _refused(name, "it takes no positions")
    try:
        found = find_rotary(network)
        if not found:
            raise _refused(name, "the angles that it turns queries and keys by cannot be seen")
        kinds = _kinds(network, found[0])
        _try(network, found[0], kinds)
    except _FAILED as error:
        raise _refused(name, "it does not take transformers' attention interface") from error
    _turn_on(network, _layers(found[0], kinds, extension.group, extension.neighbours))


def _refused(name: str, why: str) -> LongsealError:
    return LongsealError(f"{name} cannot be run by Self-Extend: {why}. Try ntk or yarn")


def _layers(
    rotary: Rotary, kinds: Mapping[nn.Module, Style | None], group: int, neighbours: int
) -> dict[nn.Module, ExtendedLayer]:
    turns = {style: Turns(rotary, style, group, neighbours) for style in kinds.values() if style}
    return {
        module: ExtendedLayer(neighbours, turns[style] if style else None)
        for module, style in kinds.items()
    }


def _turn_on(network: PreTrainedModel, layers: Mapping[nn.Module, ExtendedLayer]) -> None:
    neighbours = next(iter(layers.values())).neighbours
    for module, layer in layers.items():
        set_extended_layer(module, layer)
    network.set_attn_implementation(register(network.config._attn_implementation, neighbours))


@contextmanager
def _tried(network: PreTrainedModel, layers: Mapping[nn.Module, ExtendedLayer]) -> Iterator[None]:
    before = network.config._attn_implementation
    try:
        _turn_on(network, layers)
        yield
    finally:
        for module in layers:
            set_extended_layer(module, None)
        network.set_attn_implementation(before)


def _see(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any
) -> tuple[Tensor, None]:
    """Keep queries and keys; attend to nothing, so that they depend on no other layer's."""
    assert kwargs["position_ids"].ndim == 2
    _HEADS[module] = query, key
    return value.new_zeros(*query.shape[:3], value.shape[-1]).transpose(1, 2), None


AttentionInterface.register(_SEEN, _see)


@torch.no_grad()
def _seen(network: PreTrainedModel, positions: Tensor) -> Heads:
    before = network.config._attn_implementation
    network.set_attn_implementation(_SEEN)
    try:
        tokens = ordinary_tokens(network, positions.shape[1])
        network(input_ids=tokens, position_ids=positions, use_cache=False)
        return dict(_HEADS)
    finally:
        _HEADS.clear()
        network.set_attn_implementation(before)


def _kinds(network: PreTrainedModel, rotary: Rotary) -> dict[nn.Module, Style | None]:
    """How each layer turns queries and keys; None where it does not.

    Raises:
        LongsealError: in a way that cannot be told.
    """
    places = torch.arange(_LENGTH, device=network.device)
    still = _seen(network, torch.zeros_like(places)[None])
    moved = _seen(network, places[None])
    cos, sin = rotary.tables(places)
    radius = (cos.square() + sin.square()).mean().sqrt()
    tables = cos / radius, sin / radius
    assert still
    assert still.keys() == moved.keys()
    return {
        module: _kind(network, module, tables, still[module], moved[module]) for module in still
    }


def _kind(
    network: PreTrainedModel,
    module: nn.Module,
    tables: tuple[Tensor, Tensor],
    still: tuple[Tensor, Tensor],
    moved: tuple[Tensor, Tensor],
) -> Style | None:
    def explains(turn: Callable[[Tensor], Tensor]) -> bool:
        return all(alike(network, turn(a), b) for a, b in zip(still, moved, strict=True))

    if explains(lambda heads: heads):
        return None
    for style in styles(tables[0].shape[-1], still[0].shape[-1]):
        cos, sin = (style.angles(table)[None] for table in tables)
        if explains(lambda heads: style.turned(heads, cos, sin)):  # noqa: B023 - called at once
            return style
    name = next(n for n, each in network.named_modules() if each is module)
    raise _refused(type(network).__name__, f"how {name} turns queries and keys cannot be told")


@torch.no_grad()
def _try(network: PreTrainedModel, rotary: Rotary, kinds: Mapping[nn.Module, Style | None]) -> None:
    """Compare with what the model itself gives, where Self-Extend comes to that.

    Without neighbours it is the model at its groups' positions; with groups of one it is the model.

    Raises:
        LongsealError: it is not, or a cache changes what it gives.
    """
    tokens = ordinary_tokens(network, _LENGTH)
    places = torch.arange(_LENGTH, device=network.device)[None]

    def logits(**more: Any) -> Tensor:  # a mask, or positions that stand still would be told apart
        whole = {"attention_mask": torch.ones_like(tokens), "use_cache": False}
        found: Tensor = network(input_ids=tokens, **(whole | more)).logits
        return found

    grouped, plain = logits(position_ids=places // 3), logits()
    with _tried(network, _layers(rotary, kinds, 3, 0)):
        same = alike(network, logits(), grouped)
    with _tried(network, _layers(rotary, kinds, 1, 7)):
        same = same and alike(network, logits(), plain)
    with _tried(network, _layers(rotary, kinds, 3, 7)):
        word = "cache" if takes(network, "cache") else "past_key_values"
        kept = {word: DynamicCache(config=network.config), "use_cache": True}
        steps = [network(input_ids=part, **kept).logits for part in tokens.split([5, 18], dim=1)]
        same = same and alike(network, torch.cat(steps, dim=1), logits())
    if not same:
        raise _refused(type(network).__name__, "it was tried out, and gives something else")
