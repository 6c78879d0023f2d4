"""Do scales reach what a layer puts out? A fused kernel may go past the module they hang on."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only
from transformers import PreTrainedModel

from longseal.errors import LongsealError
from longseal.models.arguments import last_logits, ordinary_tokens, takes
from longseal.models.sites import Site
from longseal.scales.hooks import Factor, refuse_attached, scaling

_LENGTH = 11  # tokens of the two passes
_CHECKED: WeakKeyDictionary[PreTrainedModel, set[tuple[object, frozenset[str]]]] = (
    WeakKeyDictionary()
)


@contextmanager
def checked_scaling(
    network: PreTrainedModel, sites: Sequence[Site], factors: Mapping[str, Factor]
) -> Iterator[None]:
    """Scale the inputs of the sites inside the block; every way of attaching goes through here.

    Raises:
        LongsealError: scales are attached already, or would have no effect.
    """
    refuse_attached(network)
    _refuse_compiled(network)
    check_effect(network, sites)
    with scaling(network, factors):
        yield


def _refuse_compiled(network: PreTrainedModel) -> None:
    """Code that was compiled earlier does not look for hooks that were attached later."""
    for name, module in network.named_modules():
        if getattr(module, "_compiled_call_impl", None) is not None or hasattr(module, "_orig_mod"):
            raise LongsealError(
                f"{name or 'the model'} is compiled (torch.compile), and compiled code would not "
                "see the scales: attach them to the model as it was loaded, or fold them"
            )


def check_effect(network: PreTrainedModel, sites: Sequence[Site]) -> None:
    """Refuse a network in which doubling a head's scale changes nothing; once for each network.

    Asked again when the attention implementation or the sites are others. A network that cannot be
    run on a few tokens is let pass with a warning: nothing is known against it.

    Raises:
        LongsealError: a layer computes its output without running its output projection.
    """
    key = getattr(network.config, "_attn_implementation", None), frozenset(s.name for s in sites)
    checked = _CHECKED.setdefault(network, set())
    if key in checked:
        return
    try:
        bypassed = _bypassed(network, sites)
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as e:
        first = (str(e).splitlines() or [type(e).__name__])[0]
        warnings.warn(
            f"whether scales take effect in this {type(network).__name__} could not be checked: "
            f"it does not run on {_LENGTH} tokens ({first})",
            stacklevel=2,
        )
        checked.add(key)
        return
    if bypassed:
        more = f" and {len(bypassed) - 1} more" if len(bypassed) > 1 else ""
        raise LongsealError(
            f"scales would have no effect on {bypassed[0]}{more}: the layer computes its output "
            f"without running that module (attention {key[0]!r}, a fused kernel?). Load the model "
            "without the kernel that replaces it"
        )
    checked.add(key)


@torch.no_grad()
def _bypassed(network: PreTrainedModel, sites: Sequence[Site]) -> list[str]:
    """Names of the projections whose scales do not reach the output of their attention module.

    Two passes. The first keeps what each attention module puts out. The second doubles a head in
    every layer and compares; each module's output is then put back as it was, so that every layer
    sees in both passes the very same input.
    """
    tokens = ordinary_tokens(network, _LENGTH)
    options = last_logits(network, 1)
    if takes(network, "use_cache"):
        options["use_cache"] = False
    heads: dict[str, int | None] = {}
    with ExitStack() as hooks:
        for site in sites:
            projection = network.get_submodule(site.name)
            handle = projection.register_forward_pre_hook(_choose_head(site, heads))
            hooks.callback(handle.remove)
        kept = [hooks.enter_context(_keeping(module)) for module in _parents(network, sites)]
        network(input_ids=tokens, **options)
    silent = [site.name for site in sites if site.name not in heads]
    chosen = {site: head for site in sites if (head := heads.get(site.name)) is not None}
    doubled = {site.name: _doubling(site, head) for site, head in chosen.items()}
    modules = dict(zip(_parents(network, sites), kept, strict=True))
    with ExitStack() as hooks:
        compared = {
            m: hooks.enter_context(_comparing(m, outputs)) for m, outputs in modules.items()
        }
        hooks.enter_context(scaling(network, doubled))
        network(input_ids=tokens, **options)
    for site in chosen:
        changes = compared[_parent(network, site)]
        if changes and not any(changes):  # none: it is run in another way than by calling it
            silent.append(site.name)
    return [site.name for site in sites if site.name in silent]


def _parent(network: PreTrainedModel, site: Site) -> nn.Module:
    """The closest module around a projection that computes something: its attention module."""
    path = site.name
    while path:
        path = path.rpartition(".")[0]
        module = network.get_submodule(path)
        if not isinstance(module, nn.ModuleList | nn.ModuleDict):
            return module
    return network


def _parents(network: PreTrainedModel, sites: Sequence[Site]) -> list[nn.Module]:
    return list(dict.fromkeys(_parent(network, site) for site in sites))


@contextmanager
def _keeping(module: nn.Module) -> Iterator[list[Any]]:
    """What a module puts out inside the block, one entry a call."""
    kept: list[Any] = []
    handle = module.register_forward_hook(lambda _, __, output: kept.append(_copy(output)))
    try:
        yield kept
    finally:
        handle.remove()


@contextmanager
def _comparing(module: nn.Module, kept: Sequence[Any]) -> Iterator[list[bool]]:
    """Whether each call gives another output than was kept; the kept one is passed on instead."""
    changes: list[bool] = []

    def compare(_: nn.Module, __: Any, output: Any) -> Any:
        before = kept[len(changes)]
        pairs = zip(_tensors(output), _tensors(before), strict=True)
        changes.append(not all(torch.equal(now, was) for now, was in pairs))
        return _copy(before)

    handle = module.register_forward_hook(compare)
    try:
        yield changes
    finally:
        handle.remove()


def _copy(output: Any) -> Any:
    return tree_map_only(Tensor, Tensor.clone, output)  # a later layer may add to it in place


def _tensors(output: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor)]


def _choose_head(site: Site, heads: dict[str, int | None]) -> Callable[..., None]:
    """Pre-hook that notes the head whose doubling should change the projection's output most.

    None where no head changes it, as with weights that are all zero.
    """

    def choose(projection: nn.Module, args: tuple[Any, ...]) -> None:
        if site.name in heads:
            return
        last = args[0].reshape(-1, site.channels)[-1]
        alone = last * torch.eye(site.n_heads + 1, site.n_heads).to(last).repeat_interleave(
            site.width, dim=1
        )  # a row a head, and one of zeros, which gives the bias
        outputs = projection.forward(alone[None])[0].float()  # not called: hooks would run again
        change = (outputs[:-1] - outputs[-1]).abs().amax(1)
        loudest = int(change.argmax())
        heads[site.name] = loudest if change[loudest] > 0 else None

    return choose


def _doubling(site: Site, head: int) -> Callable[[Tensor], Tensor]:
    factor = torch.ones(site.n_heads, site.width)
    factor[head] = 2
    return lambda _: factor.flatten()
