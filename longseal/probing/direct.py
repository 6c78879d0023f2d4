"""What each head and each MLP adds, by itself, to the logits of chosen tokens.

The residual stream is a sum. What a head writes into it at a position reaches the logits there
directly too, through the final norm alone, whatever later layers make of it. The norms' statistics
are held at what they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from longseal.errors import LongsealError
from longseal.models.arguments import last_logits
from longseal.models.layers import layers_of, place_of, stack_of
from longseal.models.load import LanguageModel
from longseal.models.row_length import forget_lengths
from longseal.models.sites import Site
from longseal.probing.frozen import FrozenNorm


@dataclass(frozen=True)
class Contribution:
    """What one part of the model adds to the difference of two logits.

    Attributes:
        name: L1H18, "L1 MLP", "embedding", or "L1 bias" for what a norm or projection adds.
        layer, head: None where it has none.
    """

    name: str
    layer: int | None
    head: int | None
    value: float


@dataclass(frozen=True)
class DirectEffect:
    """Contributions to logit(token) - logit(other), before any scale or cap after `lm_head`.

    Attributes:
        difference: of the two logits; the contributions add up to it.
    """

    token: int
    other: int
    difference: float
    contributions: tuple[Contribution, ...]


@dataclass(frozen=True)
class _Call:
    """What a module took and gave at the last position: `(hidden,)` each."""

    name: str
    module: nn.Module
    taken: Tensor
    given: Tensor


@dataclass
class _Seen:
    """What passed at the last position.

    Attributes:
        layers: by place.
        children: the modules of each layer, in the order in which they ran.
        above: what lies beside the layers, such as the final norm.
        heads: into output projections, `(channels,)`, by site name.
    """

    layers: dict[int, _Call] = field(default_factory=dict)
    children: dict[int, list[_Call]] = field(default_factory=dict)
    above: list[_Call] = field(default_factory=list)
    heads: dict[str, Tensor] = field(default_factory=dict)


@torch.no_grad()
def direct_effect(
    model: LanguageModel, tokens: Sequence[int], token: int, other: int
) -> DirectEffect:
    """Split logit(token) - logit(other) after `tokens` into what each part adds to it directly.

    Whatever is attached to the model counts.

    Raises:
        LongsealError: what the model's layers add is not their attention's output and their MLP's,
            each perhaps through a norm.
    """
    network = model.network
    try:
        count = len(layers_of(network, model.sites))
    except ValueError as error:
        raise _refusal(model) from error
    seen = _Seen()
    row = torch.tensor([list(tokens)], device=model.device)
    forget_lengths(network)
    with _watching(model, seen):
        network(input_ids=row, **last_logits(network, 1), use_cache=False)
    head = network.get_output_embeddings()
    towards = head.weight[token].float() - head.weight[other].float()
    stream = seen.layers[count - 1].given
    final = next((call for call in seen.above if _same(call.taken, stream)), None)
    if final is None:
        raise _refusal(model)
    norm = FrozenNorm.at(final.module, stream)
    pull = norm.pulled(towards)
    parts = [Contribution("embedding", None, None, _dot(pull, seen.layers[0].taken))]
    for place in range(count):
        parts += _of_layer(model, place, seen, pull)
    rest = _dot(towards, norm.bias)
    if getattr(head, "bias", None) is not None:
        rest += float(head.bias[token] - head.bias[other])
    if rest:
        parts.append(Contribution("final bias", None, None, rest))
    difference = _dot(towards, final.given) + rest - _dot(towards, norm.bias)
    total, size = sum(p.value for p in parts), sum(abs(p.value) for p in parts)
    if abs(total - difference) > _tolerance(model) * max(1.0, size):
        raise _refusal(model)
    return DirectEffect(token, other, difference, tuple(parts))


def _of_layer(
    model: LanguageModel, place: int, seen: _Seen, pull: Tensor
) -> Iterator[Contribution]:
    """What a layer adds: each of its heads, biases, and its MLP."""
    layer = seen.layers[place]
    added = layer.given.float() - layer.taken.float()
    site = next((site for site in model.sites if place_of(site) == place), None)
    if site is None:  # no heads: all of it
        yield Contribution(f"L{place}", place, None, _dot(pull, added))
        return
    own = site.name.removeprefix(f"{stack_of(model.sites)}.{place}.").split(".")[0]
    calls = seen.children.get(place, [])
    attention = next((call for call in calls if call.name == own), None)
    others = [c for c in calls if c.name != own and "norm" not in type(c.module).__name__.lower()]
    if attention is None or not others:
        raise _refusal(model)
    after, attention_norm = _normed(attention.given, calls)
    mlp, _ = _normed(others[-1].given, calls)
    columns = torch.stack([after.float(), mlp.float()], 1)
    factors = torch.linalg.lstsq(columns, added[:, None]).solution[:, 0]  # a multiplier, or 1
    if (columns @ factors - added).norm() > _tolerance(model) * max(1.0, added.norm().item()):
        raise _refusal(model)
    written = _written(model, site, seen.heads[site.name])
    through = attention_norm or (lambda part: part)
    for number, each in enumerate(written):
        value = float(factors[0]) * _dot(pull, through(each))
        yield Contribution(f"L{site.layer}H{number}", site.layer, number, value)
    bias = float(factors[0]) * _dot(pull, after.float() - through(written.sum(0)))
    if abs(bias) > 1e-5:
        yield Contribution(f"L{site.layer} bias", site.layer, None, bias)
    yield Contribution(f"L{site.layer} MLP", site.layer, None, float(factors[1]) * _dot(pull, mlp))


def _normed(given: Tensor, calls: Sequence[_Call]) -> tuple[Tensor, FrozenNorm | None]:
    """What a norm made of it before it was added, and that norm; itself where none did."""
    for call in calls:
        if "norm" in type(call.module).__name__.lower() and _same(call.taken, given):
            return call.given, FrozenNorm.at(call.module, given)
    return given, None


def _written(model: LanguageModel, site: Site, heads: Tensor) -> Tensor:
    """What each head writes, before any norm: `(n_heads, hidden)` float32."""
    projection = model.network.get_submodule(site.name)
    weight = projection.weight
    if not isinstance(weight, Tensor) or weight.ndim != 2 or not weight.is_floating_point():
        raise LongsealError(
            "direct effects need the weights as they are: load the model without --quantize"
        )
    weight = weight.float() if isinstance(projection, Conv1D) else weight.float().T
    parts = weight.view(site.n_heads, site.width, -1)
    return torch.einsum("hw,hwd->hd", heads.float().view(site.n_heads, site.width), parts)


@contextmanager
def _watching(model: LanguageModel, seen: _Seen) -> Iterator[None]:
    """Note what passes at the last position."""
    network, path = model.network, stack_of(model.sites)

    def calls(note: Callable[[_Call], None], name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            taken = args[0] if args else kwargs.get("hidden_states")
            given = output[0] if isinstance(output, tuple) else output
            if isinstance(taken, Tensor) and isinstance(given, Tensor) and given.ndim == 3:
                note(_Call(name, module, _last(taken), _last(given)))

        return hook

    def heads(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any) -> None:
            seen.heads[name] = _last(args[0])

        return hook

    with ExitStack() as stack:

        def watch(module: nn.Module, name: str, note: Callable[[_Call], None]) -> None:
            handle = module.register_forward_hook(calls(note, name), with_kwargs=True)
            stack.callback(handle.remove)

        for place, layer in enumerate(layers_of(network, model.sites)):
            watch(layer, str(place), partial(seen.layers.__setitem__, place))
            for name, child in layer.named_children():
                watch(child, name, seen.children.setdefault(place, []).append)
        above = network.get_submodule(path.rpartition(".")[0])
        for name, child in above.named_children():
            watch(child, name, seen.above.append)
        for site in model.sites:
            module = network.get_submodule(site.name)
            stack.callback(module.register_forward_pre_hook(heads(site.name)).remove)
        yield


def _last(hidden: Tensor) -> Tensor:
    return hidden.reshape(-1, hidden.shape[-1])[-1].detach().clone()


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.equal(one, other)


def _dot(one: Tensor, other: Tensor) -> float:
    return float(one.double() @ other.double())


def _tolerance(model: LanguageModel) -> float:
    return 1e-3 if model.network.dtype == torch.float32 else 2e-2


def _refusal(model: LanguageModel) -> LongsealError:
    return LongsealError(
        f"direct effects cannot be told apart in {type(model.network).__name__}: what its layers "
        "add is more than their attention and their MLP"
    )
