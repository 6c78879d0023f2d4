"""Find where each attention head's output meets the output projection."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.pytorch_utils import Conv1D

from longseal.errors import LongsealError
from longseal.models.arguments import ordinary_tokens, takes
from longseal.models.layers import split
from longseal.models.marks import Mark
from longseal.models.sites import Site, Structure, ValueRows
from longseal.models.trace import Trace
from longseal.models.value_check import is_plain, values_hold
from longseal.models.watch import watch

_LENGTH = 23  # tokens of the pass that is watched: no usual size of anything else


def find_structure(network: PreTrainedModel) -> Structure:
    """Find every attention layer's output projection by watching one short pass (see `watch`).

    Only what runs on text is found: other towers of a vision-language model are left alone.

    Raises:
        LongsealError: the network cannot run on tokens alone, or no layer has heads whose outputs
            meet an output projection.
    """
    run = short_pass(network)
    seen, plain = watch_pass(network, run)
    layers = _Layers(network, (*seen.inputs, *seen.attending))
    found = {path: _heads(network, seen, path) for path in seen.inputs}
    reasons = {layers.index(path): why for path, why in found.items() if isinstance(why, str)}
    for path in seen.attending:
        lost = "its heads' outputs meet no projection"
        reasons.setdefault(layers.index(path), seen.refused.get(path, lost))
    for path, why in found.items():  # heads that go there as well are used in another place
        for mark in seen.inputs[path] if isinstance(why, str) else ():
            seen.used_elsewhere(mark)
    sites = [
        Site(path, layers.index(path), *heads, _values(network, seen, path, heads[0]))
        for path, heads in found.items()
        if not isinstance(heads, str)
    ]
    if not sites:
        why = next(iter(reasons.values()), "no layer has a softmax over positions")
        raise LongsealError(f"{type(network).__name__} has no heads that longseal can scale: {why}")
    taken = {site.layer for site in sites}
    skipped = {
        layer: reasons.get(layer) or layers.kind(layer)
        for layer in range(layers.count)
        if layer not in taken
    }
    ordered = sorted(sites, key=lambda site: site.layer)
    return Structure(tuple(_tried(network, _unshared(ordered), run, plain)), skipped)


def short_pass(network: PreTrainedModel) -> Callable[[], Tensor]:
    """A pass over tokens that mean nothing special; it gives the logits."""
    tokens = ordinary_tokens(network, _LENGTH)
    options = {"use_cache": False} if takes(network, "use_cache") else {}

    def run() -> Tensor:
        logits: Tensor = network(input_ids=tokens, **options).logits
        return logits

    return run


def watch_pass(network: PreTrainedModel, run: Callable[[], Tensor]) -> tuple[Trace, Tensor]:
    """Watch that pass; its logits too."""
    try:
        with _written_out(network):
            return watch(network, run, _LENGTH)
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as e:
        first = (str(e).splitlines() or [type(e).__name__])[0]
        raise LongsealError(f"{type(network).__name__} cannot be run on text alone: {first}") from e


@contextmanager
def _written_out(network: PreTrainedModel) -> Iterator[None]:
    """Let attention run as torch operations: kernels of other libraries cannot be watched."""
    usual = network.config._attn_implementation
    if usual in (None, "eager", "sdpa"):
        yield
        return
    network.set_attn_implementation("eager")
    try:
        yield
    finally:
        network.set_attn_implementation(usual)


class _Layers:
    """The decoder layers of a network, numbered through where there is more than one stack."""

    def __init__(self, network: PreTrainedModel, paths: tuple[str, ...]) -> None:
        self._config: PreTrainedConfig = network.config.get_text_config(decoder=True)
        self._first: dict[str, int] = {}
        self.count = 0
        for path in paths:
            stack, _ = split(path)
            if stack not in self._first:
                self._first[stack] = self.count
                modules = network.get_submodule(stack)
                self.count += len(modules) if isinstance(modules, nn.ModuleList) else 1

    def index(self, path: str) -> int:
        """The layer that a module belongs to."""
        stack, number = split(path)
        return self._first[stack] + number

    def kind(self, layer: int) -> str:
        """What a layer without heads is, as far as the config says."""
        for name in ("layer_types", "layers_block_type"):
            kinds = getattr(self._config, name, None)
            if isinstance(kinds, list | tuple) and layer < len(kinds):
                return f"{kinds[layer]}: no softmax over positions"
        return "no softmax over positions"


def _heads(network: PreTrainedModel, seen: Trace, path: str) -> tuple[int, int, int, int] | str:
    """Of a projection that receives heads: n_heads, n_kv_heads, width, input axis; or why not."""
    marks = [mark for mark in seen.inputs[path] if mark is not None]
    layouts = [_same_everywhere(mark.head) for mark in marks]
    head = layouts[0]
    if head is None or not all(other is not None and torch.equal(head, other) for other in layouts):
        return f"{path} takes some heads after others, not all side by side"
    if bool((head < 0).any()):
        return f"{path} takes more than the outputs of heads"
    _, counts = head.unique_consecutive(return_counts=True)
    if len(counts) != len(head.unique()) or len(counts.unique()) != 1:
        return f"the heads do not lie one after another in the input of {path}"
    module = network.get_submodule(path)
    if is_plain(module) is False:
        return f"{path} ({type(module).__name__}) does more than multiply by its weight"
    if path in seen.bare:
        return f"the weight of {path} is used outside of that module"
    if other := other_owner(network, seen, path):
        return f"the weight of {path} is that of {other} too"
    n_heads, width = len(counts), int(counts[0])
    axis = 0 if isinstance(module, Conv1D) else 1
    return n_heads, _value_heads(marks[0], n_heads, width), width, axis


def other_owner(network: PreTrainedModel, seen: Trace, path: str) -> str | None:
    """Another module with the same weight: what is folded into one would change the other."""
    module = network.get_submodule(path)
    owners = seen.owners.get(id(getattr(module, "weight", None)), [])
    return next((name for name in owners if network.get_submodule(name) is not module), None)


def _value_heads(mark: Mark, n_heads: int, width: int) -> int:
    """How many of the heads have values of their own: all, where that cannot be seen."""
    planes = [_same_everywhere(plane) for plane in (mark.source, mark.row)]
    known = [plane for plane in planes if plane is not None and bool((plane >= 0).all())]
    if len(known) < 2:
        return n_heads
    return len(torch.stack(known).view(2, n_heads, width).unique(dim=1)[0])


def _values(network: PreTrainedModel, seen: Trace, path: str, n_heads: int) -> ValueRows | str:
    """Which rows give the values of a site's heads, or why a factor on them would not be exact."""
    calls = seen.inputs[path]
    mark = next(mark for mark in calls if mark is not None)
    if mark.row is None or mark.source is None or mark.broken is not None:
        return f"{mark.broken or 'an unknown step'} stands between the values and {path}"
    row, source = _same_everywhere(mark.row), _same_everywhere(mark.source)
    if any(other is None or other.broken or not mark.agrees(other) for other in calls):
        return f"{path} runs more than once, on other values"
    if row is None or source is None or bool((row < 0).any()) or len(source.unique()) != 1:
        return f"the values of {path} do not come from one projection"
    number = int(source[0])
    if seen.elsewhere.get(number, set()) & set(row.tolist()):
        return f"the values of {path} are used in another place too"
    heads = row.view(n_heads, -1)
    if not torch.equal(heads, heads[:, :1] + torch.arange(heads.shape[1], device=heads.device)):
        return f"the values of a head of {path} do not lie one after another"
    name = seen.names[number]
    module = network.get_submodule(name)
    if not is_plain(module):
        return f"{name} ({type(module).__name__}) does more than multiply by its weight"
    if name in seen.bare or other_owner(network, seen, name):
        return f"the weight of {name} is used in another place too"
    axis = 1 if isinstance(module, Conv1D) else 0
    return ValueRows(name, axis, tuple(heads[:, 0].tolist()))


def _same_everywhere(plane: Tensor | None) -> Tensor | None:
    """The plane's row, `(channels,)`, if it is the same at every position."""
    if plane is None:
        return None
    rows = plane.reshape(-1, plane.shape[-1])
    return rows[0] if torch.equal(rows, rows[:1].expand_as(rows)) else None


def _unshared(sites: list[Site]) -> Iterator[Site]:
    """The sites, without values that come from a projection that gives another's too."""
    names = [site.values.name for site in sites if isinstance(site.values, ValueRows)]
    for site in sites:
        shared = isinstance(site.values, ValueRows) and names.count(site.values.name) > 1
        reason = f"the values of {site.name} are those of another layer too"
        yield replace(site, values=reason) if shared else site


def _tried(
    network: PreTrainedModel, sites: Iterator[Site], run: Callable[[], Tensor], plain: Tensor
) -> list[Site]:
    """The sites, once factors on their values were seen to be factors on their heads."""
    found = list(sites)
    random = torch.Generator().manual_seed(0)
    inputs, outputs = {}, {}
    for site in found:
        if not isinstance(site.values, ValueRows):
            continue
        weight = network.get_submodule(site.values.name).weight
        assert isinstance(weight, Tensor)
        rows = torch.ones(weight.shape[site.values.output_axis])
        for first in set(site.values.first):
            rows[first : first + site.width] = 1 + 0.3 * torch.randn(site.width, generator=random)
        outputs[site.values.name] = rows
        inputs[site.name] = torch.cat([rows[f : f + site.width] for f in site.values.first])
    if not inputs or values_hold(network, run, plain, inputs, outputs):
        return found
    reason = "factors on the values were tried out, and are not factors on the heads"
    return [
        replace(site, values=reason) if isinstance(site.values, ValueRows) else site
        for site in found
    ]
