"""What folding changes in a checkpoint: which rows or columns of which tensors, and by what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import prod

import torch
from torch import Tensor

from longseal.config import Projection
from longseal.errors import LongsealError
from longseal.fold.checkpoint import Checkpoint
from longseal.fold.names import Names, Source
from longseal.fold.safetensors_file import Entry
from longseal.models.sites import Site, ValueRows
from longseal.scales import Scales


@dataclass(frozen=True, eq=False)
class Change:
    """Factors for one tensor.

    Attributes:
        path: the shard's file name.
        rows: the rows of the stored tensor that belong to the parameter.
        axis: which axis of the parameter the factors run along (a bias has one column).
        factor: `(size of that axis,)`, float32; 1 where nothing changes.
        scaled: `(size of that axis,)`, bool; where factors were given.
    """

    key: str
    path: str
    entry: Entry
    rows: range
    axis: int
    factor: Tensor
    scaled: Tensor


def changes(
    checkpoint: Checkpoint, names: Names, scales: Scales, projection: Projection
) -> list[Change]:
    """Work out everything that folding `scales` changes; nothing is written.

    Raises:
        LongsealError: a tensor is absent or quantised, or the values cannot be scaled exactly.
    """
    into = _outputs if projection == "output" else _values
    made = list(into(checkpoint, names, scales))
    counts = Counter((change.key, change.rows.start) for change in made)
    for change in made:
        if counts[change.key, change.rows.start] > 1:
            raise LongsealError(
                f"{change.key} serves more than one layer: scales of each cannot be folded into it"
            )
    return made


def _outputs(checkpoint: Checkpoint, names: Names, scales: Scales) -> Iterator[Change]:
    """Factors along the input of every output projection; its bias stays."""
    for site in scales.sites:
        everywhere = torch.ones(site.channels, dtype=torch.bool)
        source = source_of(checkpoint, names, site.weight)
        factor = scales.scale(site).detach().cpu()
        yield _change(checkpoint, source, site.weight, site.input_axis, factor, everywhere)


def _values(checkpoint: Checkpoint, names: Names, scales: Scales) -> Iterator[Change]:
    """Factors along the output of every value projection, and for its bias."""
    found: dict[tuple[str, int], dict[int, float]] = {}
    for site in scales.sites:
        for (name, axis), factors in _value_factors(site, scales).items():
            known = found.setdefault((name, axis), {})
            if known.keys() & factors.keys():
                raise _not_into_values(site, f"another layer takes its values from {name} as well")
            known.update(factors)
    for (name, axis), factors in found.items():
        weight = source_of(checkpoint, names, f"{name}.weight")
        bias = names.find_bias(name)
        rows, columns = shape_of(checkpoint, weight, f"{name}.weight")
        size = columns if axis == 1 else len(rows)
        if size <= max(factors):
            raise unexpected(checkpoint, weight, f"{name}.weight")
        factor, scaled = torch.ones(size), torch.zeros(size, dtype=torch.bool)
        index = torch.tensor(list(factors))
        factor[index], scaled[index] = torch.tensor(list(factors.values())), True
        yield _change(checkpoint, weight, f"{name}.weight", axis, factor, scaled)
        if bias is not None:
            yield _change(checkpoint, bias, f"{name}.bias", 0, factor, scaled)


def _value_factors(site: Site, scales: Scales) -> dict[tuple[str, int], dict[int, float]]:
    """The factor of each row that gives a site's values; heads that share rows have to agree."""
    values = site.values
    if not isinstance(values, ValueRows):
        raise _not_into_values(site, values)
    if len(values.first) != site.n_heads:
        raise _not_into_values(site, "the rows of its values are not known for every head")
    factor = scales.scale(site).detach().view(site.n_heads, site.width).tolist()
    first_head: dict[int, int] = {}
    for head, first in enumerate(values.first):
        sharing = first_head.setdefault(first, head)
        if factor[sharing] != factor[head]:
            raise _not_into_values(
                site, f"heads {sharing} and {head} share a value head and have unequal scales"
            )
    starts = sorted(first_head)
    for one, other in pairwise(starts):
        if other < one + site.width:
            raise _not_into_values(
                site,
                f"the values of heads {first_head[one]} and {first_head[other]} overlap in part",
            )
    found = {
        first + channel: factor[head][channel]
        for first, head in first_head.items()
        for channel in range(site.width)
    }
    return {(values.name, values.output_axis): found}


def _not_into_values(site: Site, reason: str) -> LongsealError:
    return LongsealError(f"layer {site.layer}: {reason}: fold into the output projection")


def source_of(checkpoint: Checkpoint, names: Names, name: str) -> Source:
    """Where a parameter lies.

    Raises:
        LongsealError: nowhere, or in a form that longseal does not follow.
    """
    source = names.find(name)
    if source is None:
        hint = checkpoint.quantised or "the adapter was made for another base"
        if not checkpoint.quantised and names.network is None:
            hint = (
                "its own code would say how it is called there. If you trust that, fold with "
                "--check --trust-remote-code, or give the loaded model"
            )
        raise LongsealError(f"{checkpoint.folder} has no tensor {name}: {hint}")
    if source.changed:
        raise LongsealError(f"{name} cannot be folded into: {source.changed}")
    return source


def _change(
    checkpoint: Checkpoint, source: Source, name: str, axis: int, factor: Tensor, scaled: Tensor
) -> Change:
    rows, columns = shape_of(checkpoint, source, name)
    if len(factor) != (columns if axis == 1 else len(rows)):
        raise unexpected(checkpoint, source, name)
    path, entry = checkpoint.tensors[source.key]
    return Change(source.key, path.name, entry, rows, axis, factor, scaled)


def shape_of(checkpoint: Checkpoint, source: Source, name: str) -> tuple[range, int]:
    """The rows that a weight or bias has in its tensor, and how many columns (a bias: 1).

    Raises:
        LongsealError: the tensor is quantised, or has too many or too few dimensions or rows.
    """
    path, entry = checkpoint.tensors[source.key]
    if entry.dtype is None:
        hint = checkpoint.quantised or "fold into the full-precision base"
        raise LongsealError(f"{name} is quantised in {path}: {hint}")
    if len(entry.shape) != (1 if name.endswith(".bias") else 2):
        raise unexpected(checkpoint, source, name)
    rows = range(entry.shape[0]) if source.rows is None else source.rows
    if rows.stop > entry.shape[0]:
        raise unexpected(checkpoint, source, name)
    return rows, prod(entry.shape[1:])


def unexpected(checkpoint: Checkpoint, source: Source, name: str) -> LongsealError:
    """The error of a tensor whose shape is not the adapter's."""
    shape = checkpoint.tensors[source.key][1].shape
    hint = checkpoint.quantised or "the adapter was made for another base"
    return LongsealError(f"{name} has an unexpected shape {shape}: {hint}")
