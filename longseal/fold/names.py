"""Which tensor of a checkpoint becomes which parameter of the model that is loaded from it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import (
    Chunk,
    Split,
    WeightConverter,
    WeightRenaming,
    dot_natural_key,
    rename_source_key,
)


@dataclass(frozen=True)
class Source:
    """Where a parameter lies in a checkpoint.

    Attributes:
        key: the tensor's name there.
        rows: where the tensor holds several parameters, one below another: the rows of this one.
        changed: what transformers does to the tensor that longseal cannot follow; else empty.
    """

    key: str
    rows: range | None = None
    changed: str = ""


class Names:
    """Finds parameters in a checkpoint: by their own names, else as transformers renames on load.

    Args:
        keys: the names of the checkpoint's tensors.
        network: the network, or one without weights, or None where it cannot be made; asked only
            when a name is absent.
    """

    def __init__(
        self, keys: Collection[str], network: Callable[[], PreTrainedModel | None]
    ) -> None:
        self._keys = frozenset(keys)
        self._make = network

    @cached_property
    def network(self) -> PreTrainedModel | None:
        """The network whose parameters the checkpoint holds; None where its code is not at hand."""
        return self._make()

    @cached_property
    def loaded(self) -> Mapping[str, Source]:
        """By parameter name, what transformers fills it with; empty where that is not known."""
        return {} if self.network is None else _loaded(self.network, self._keys)

    def find(self, name: str) -> Source | None:
        """Where the parameter that a model calls `name` lies."""
        return Source(name) if name in self._keys else self.loaded.get(name)

    def find_bias(self, module: str) -> Source | None:
        """Where the bias of a module lies; None where it has none."""
        if f"{module}.weight" in self._keys:  # then the bias would stand beside it
            name = f"{module}.bias"
            return Source(name) if name in self._keys else None
        return self.find(f"{module}.bias")


def empty_network(folder: Path) -> PreTrainedModel | None:
    """The network of a checkpoint without its weights; None where its code is not transformers'."""
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        with torch.device("meta"):
            network = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    except (AttributeError, ImportError, KeyError, OSError, RuntimeError, TypeError, ValueError):
        return None
    assert isinstance(network, PreTrainedModel)
    return network


def _loaded(network: PreTrainedModel, keys: Collection[str]) -> dict[str, Source]:
    """What `from_pretrained` would fill each parameter with.

    The names are worked out by transformers' own functions, so that what it renames, in whichever
    version is installed, is found under the name that it has in the files.
    """
    state = network.state_dict()
    transforms = get_model_conversion_mapping(network)
    renamings = [t for t in transforms if isinstance(t, WeightRenaming)]
    converters = [t for t in transforms if isinstance(t, WeightConverter)]
    by_pattern = {pattern: c for c in converters for pattern in c.source_patterns}
    prefix = network.base_model_prefix
    found: dict[str, Source] = {}
    for key in sorted(
        keys, key=dot_natural_key
    ):  # in transformers' order: some renamings count on it
        name, pattern = rename_source_key(key, renamings, converters, prefix, state)
        if name not in state and key in state:
            name, pattern = rename_source_key(key, [], [], prefix, state)
        if pattern is not None:
            found |= _converted(key, name, by_pattern[pattern], state)
        elif name in found:
            found[name] = Source(key, changed=f"{found[name].key} and {key} both fit")
        elif name in state:
            found[name] = Source(key)
    return found | _tied(network, found)


def _converted(
    key: str, name: str, converter: WeightConverter, state: Mapping[str, torch.Tensor]
) -> dict[str, Source]:
    """The parameters that an operation makes from a tensor (and perhaps from others as well)."""
    first = converter.target_patterns[0]
    names = [name.replace(first, target) for target in converter.target_patterns]
    operations = converter.operations
    if (
        len(converter.source_patterns) == len(operations) == 1
        and type(operations[0]) in (Chunk, Split)
        and vars(operations[0]) in ({"dim": 0}, {"dim": 0, "num_shards_attribute": None})
        and all(target in state for target in names)
    ):
        ends = list(accumulate(len(state[target]) for target in names))
        starts = [0, *ends[:-1]]
        rows = map(range, starts, ends)
        return {target: Source(key, part) for target, part in zip(names, rows, strict=True)}
    words = ", ".join(type(operation).__name__ for operation in operations)
    changed = f"transformers makes it from {key} and perhaps others ({words})"
    return {target: Source(key, changed=changed) for target in names}


def _tied(network: PreTrainedModel, found: Mapping[str, Source]) -> dict[str, Source]:
    """Parameters that are not in the files because another name of the same tensor is."""
    pairs = getattr(network, "all_tied_weights_keys", None) or {}
    both = [*pairs.items(), *((source, target) for target, source in pairs.items())]
    return {one: found[other] for one, other in both if one not in found and other in found}
