"""Low-rank updates into a checkpoint's tensors: PEFT merges each, one in memory at a time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from longseal.errors import LongsealError
from longseal.fold.changes import shape_of, source_of, unexpected
from longseal.fold.checkpoint import Checkpoint
from longseal.fold.multiply import Rounding, measured
from longseal.fold.names import Names
from longseal.fold.safetensors_file import Entry, read_rows, write_rows
from longseal.lora import LowRank


@dataclass(frozen=True, eq=False)
class Merge:
    """Updates for one tensor.

    Attributes:
        path: the shard's file name.
        rows: the rows of the stored tensor that belong to the parameter.
        module: the adapted module.
        updates: of all modules.
    """

    key: str
    path: str
    entry: Entry
    rows: range
    module: str
    updates: LowRank


def merges(checkpoint: Checkpoint, names: Names, updates: LowRank) -> list[Merge]:
    """Work out everything that merging changes; nothing is written.

    Raises:
        LongsealError: a tensor is absent or quantised, or has another shape than its updates.
    """
    made = []
    for module in updates.modules:
        name = f"{module}.weight"
        source = source_of(checkpoint, names, name)
        rows, columns = shape_of(checkpoint, source, name)
        outputs, inputs = updates.sizes(module)
        wanted = (inputs, outputs) if updates.fan_in_fan_out else (outputs, inputs)
        if (len(rows), columns) != wanted:
            raise unexpected(checkpoint, source, name)
        path, entry = checkpoint.tensors[source.key]
        made.append(Merge(source.key, path.name, entry, rows, module, updates))
    counts = Counter((merge.key, merge.rows.start) for merge in made)
    (key, _), most = counts.most_common(1)[0]
    if most > 1:
        raise LongsealError(
            f"{key} serves more than one module: updates of each cannot be merged into it"
        )
    return made


def merge(path: Path, change: Merge, rounding: Rounding) -> None:
    """Merge into a shard in place: in float32 (float64 where the weight is), rounded once.

    Args:
        rounding: what rounding did is added here.

    Raises:
        LongsealError: the merged weight cannot be held by the tensor's dtype.
    """
    dtype = change.entry.dtype
    assert dtype is not None
    wide = torch.promote_types(dtype, torch.float32)
    weight = read_rows(path, change.entry, change.rows).to(wide)
    exact = _merged(weight, change.updates, change.module)
    folded = exact.to(dtype)
    write_rows(path, change.entry, change.rows, folded)
    largest, wrong = measured(change.key, exact, folded, rounding)
    rounding.largest = max(rounding.largest, wrong / largest if largest else 0.0)


def _merged(weight: Tensor, updates: LowRank, module: str) -> Tensor:
    """The weight as PEFT merges the module's updates into it."""
    outputs, inputs = updates.sizes(module)
    with torch.device("meta"):  # its own weight is not needed
        plain: nn.Module = (
            Conv1D(outputs, inputs)
            if updates.fan_in_fan_out
            else nn.Linear(inputs, outputs, bias=False)
        )
    plain.weight = nn.Parameter(weight, requires_grad=False)
    network = nn.ModuleDict({"it": plain})
    alone = replace(updates, tensors={f"it{end}": t for end, t in updates.of(module).items()})
    with alone.attached(network):
        layer: Any = network["it"]  # PEFT's, by now
        layer.merge()
    return plain.weight.data
