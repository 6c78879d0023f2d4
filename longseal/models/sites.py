"""Where each attention head's output meets the output projection."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.pytorch_utils import Conv1D

from longseal.errors import LongsealError
from longseal.models.arguments import ordinary_tokens, takes
from longseal.models.marks import Mark
from longseal.models.trace import Trace, trace

_LENGTH = 23  # tokens of the pass that is watched: no usual size of anything else


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


def find_structure(network: PreTrainedModel) -> Structure:
    """Find every attention layer's output projection by watching one short pass (see `trace`).

    Only what runs on text is found: other towers of a vision-language model are left alone.

    Raises:
        LongsealError: the network cannot run on tokens alone, or no layer has heads whose outputs
            meet an output projection.
    """
    seen = _watch(network)
    layers = _Layers(network, (*seen.inputs, *seen.attending))
    sites: list[Site] = []
    reasons: dict[int, str] = {}
    for path in seen.inputs:
        found = _site(network, seen, path, layers.index(path))
        if isinstance(found, Site):
            sites.append(found)
        else:
            reasons[layers.index(path)] = found
    for path in seen.attending:
        lost = "its heads' outputs meet no projection"
        reasons.setdefault(layers.index(path), seen.refused.get(path, lost))
    for site, other in _sharing(network, [(site, site.name) for site in sites]):
        sites.remove(site)
        reasons[site.layer] = f"its output projection's weight is that of layer {other.layer} too"
    if not sites:
        why = next(iter(reasons.values()), "no layer has a softmax over positions")
        raise LongsealError(f"{type(network).__name__} has no heads that longseal can scale: {why}")
    taken = {site.layer for site in sites}
    skipped = {
        layer: reasons.get(layer) or layers.kind(layer)
        for layer in range(layers.count)
        if layer not in taken
    }
    values = [(s, s.values.name) for s in sites if isinstance(s.values, ValueRows)]
    for site, other in _sharing(network, values):
        reason = f"the values of {site.name} are those of layer {other.layer} too"
        sites[sites.index(site)] = replace(site, values=reason)
    return Structure(tuple(sorted(sites, key=lambda site: site.layer)), skipped)


def _watch(network: PreTrainedModel) -> Trace:
    """Watch a pass over tokens that mean nothing special."""
    tokens = ordinary_tokens(network, _LENGTH)
    options = {"use_cache": False} if takes(network, "use_cache") else {}
    try:
        with _written_out(network):
            return trace(network, lambda: network(input_ids=tokens, **options), _LENGTH)
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
            stack, _ = _place(path)
            if stack not in self._first:
                self._first[stack] = self.count
                modules = network.get_submodule(stack)
                self.count += len(modules) if isinstance(modules, nn.ModuleList) else 1

    def index(self, path: str) -> int:
        """The layer that a module belongs to."""
        stack, number = _place(path)
        return self._first[stack] + number

    def kind(self, layer: int) -> str:
        """What a layer without heads is, as far as the config says."""
        for name in ("layer_types", "layers_block_type"):
            kinds = getattr(self._config, name, None)
            if isinstance(kinds, list | tuple) and layer < len(kinds):
                return f"{kinds[layer]}: no softmax over positions"
        return "no softmax over positions"


def _place(path: str) -> tuple[str, int]:
    """The outermost numbered list that a module is in, and its number there."""
    parts = path.split(".")
    for i, part in enumerate(parts):
        if part.isdigit():
            return ".".join(parts[:i]), int(part)
    return "", 0


def _site(network: PreTrainedModel, seen: Trace, path: str, layer: int) -> Site | str:
    """The site of a projection that received heads' outputs, or why it is none."""
    tensor, mark = seen.inputs[path]
    assert mark.head is not None
    head = _same_everywhere(mark.head, tensor.shape[-1])
    if head is None:
        return f"{path} takes some heads after others, not all side by side"
    if bool((head < 0).any()):
        return f"{path} takes more than the outputs of heads"
    _, counts = head.unique_consecutive(return_counts=True)
    if len(counts) != len(head.unique()) or len(counts.unique()) != 1:
        return f"the heads do not lie one after another in the input of {path}"
    module = network.get_submodule(path)
    axis = 0 if isinstance(module, Conv1D) else 1
    n_heads, width = len(counts), int(counts[0])
    values = _values(network, seen, path, n_heads)
    n_kv_heads = _value_heads(mark, n_heads, width)
    return Site(path, layer, n_heads, n_kv_heads, width, axis, values)


def _value_heads(mark: Mark, n_heads: int, width: int) -> int:
    """How many of the heads have values of their own: all, where that cannot be seen."""
    planes = [
        _same_everywhere(p, n_heads * width) for p in (mark.source, mark.row) if p is not None
    ]
    known = [plane for plane in planes if plane is not None and bool((plane >= 0).all())]
    if len(known) < 2:
        return n_heads
    return len(torch.stack(known).view(2, n_heads, width).unique(dim=1)[0])


def _values(network: PreTrainedModel, seen: Trace, path: str, n_heads: int) -> ValueRows | str:
    """Which rows give the values of a site's heads, or why a factor on them would not be exact."""
    tensor, mark = seen.inputs[path]
    channels = tensor.shape[-1]
    if mark.row is None or mark.source is None or mark.broken is not None:
        return f"{mark.broken or 'an unknown step'} stands between the values and {path}"
    row, source = (_same_everywhere(plane, channels) for plane in (mark.row, mark.source))
    if row is None or source is None or bool((row < 0).any()) or len(source.unique()) != 1:
        return f"the values of {path} do not come from one projection"
    number = int(source[0])
    if seen.elsewhere.get(number, set()) & set(row.tolist()):
        return f"the values of {path} are used in another place too"
    heads = row.view(n_heads, -1)
    if not torch.equal(heads, heads[:, :1] + torch.arange(heads.shape[1], device=heads.device)):
        return f"the values of a head of {path} do not lie one after another"
    module = network.get_submodule(seen.names[number])
    axis = 1 if isinstance(module, Conv1D) else 0
    return ValueRows(seen.names[number], axis, tuple(heads[:, 0].tolist()))


def _same_everywhere(plane: Tensor, channels: int) -> Tensor | None:
    """The plane's row, `(channels,)`, if it is the same at every position."""
    rows = plane.reshape(-1, channels)
    return rows[0] if torch.equal(rows, rows[:1].expand_as(rows)) else None


def _sharing(network: PreTrainedModel, modules: list[tuple[Site, str]]) -> list[tuple[Site, Site]]:
    """The sites whose module there has a weight that another's has too, and that other."""
    found = [(site, network.get_submodule(path)) for site, path in modules]
    weights = [(site, getattr(module, "weight", module)) for site, module in found]
    return [
        (site, next(other for other, theirs in weights if theirs is weight and other is not site))
        for site, weight in weights
        if sum(theirs is weight for _, theirs in weights) > 1
    ]
