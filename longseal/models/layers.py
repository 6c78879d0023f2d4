"""The decoder layers of a network, as a list."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn
from transformers import PreTrainedModel

from longseal.models.sites import Site


def stack_of(sites: Sequence[Site]) -> str:
    """Path of the list that the sites' layers lie in.

    Raises:
        ValueError: there is no such list, or several.
    """
    found = {split(site.name)[0] for site in sites}
    if len(found) != 1 or found == {""}:
        raise ValueError("the heads do not lie in one list of layers")
    return found.pop()


def layers_of(network: PreTrainedModel, sites: Sequence[Site]) -> list[nn.Module]:
    """All layers of that list, those without heads too.

    Raises:
        ValueError: there is no such list, or several.
    """
    layers = network.get_submodule(stack_of(sites))
    if not isinstance(layers, nn.ModuleList):
        raise ValueError("the heads do not lie in one list of layers")
    return list(layers)


def place_of(site: Site) -> int:
    """A site's place in the list of layers."""
    return split(site.name)[1]


def split(path: str) -> tuple[str, int]:
    """The outermost numbered list that a module is in, and its number there."""
    parts = path.split(".")
    number = next((i for i, part in enumerate(parts) if part.isdigit()), None)
    return ("", 0) if number is None else (".".join(parts[:number]), int(parts[number]))
