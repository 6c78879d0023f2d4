"""What a watched pass showed, and what counts as a projection."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import nn
from transformers.pytorch_utils import Conv1D

from longseal.models.marks import Mark


@dataclass
class Trace:
    """What was seen.

    Attributes:
        names: path of each projection, by the number that marks carry.
        inputs: of each projection that received heads' outputs, the mark of every input, planes
            `(..., channels)`; None where a call gave it something else.
        bare: paths of projections whose weight was used outside of them.
        owners: paths of the modules that hold a parameter, by its id.
        elsewhere: rows of projections' outputs that went into anything but values, by number.
        before: of each projection, the nearest projections that its input depends on, by number.
        attending: paths of the modules in which probabilities multiplied values.
        refused: why heads' outputs found no projection, by path of the module where it happened.
    """

    names: list[str] = field(default_factory=list)
    inputs: dict[str, list[Mark | None]] = field(default_factory=dict)
    bare: set[str] = field(default_factory=set)
    owners: dict[int, list[str]] = field(default_factory=dict)
    elsewhere: dict[int, set[int]] = field(default_factory=dict)
    before: dict[int, set[int]] = field(default_factory=dict)
    attending: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)

    def used_elsewhere(self, mark: Mark | None) -> None:
        """Note that rows of a projection's output went into something but values."""
        if mark is None or not mark.exact or mark.row is None or mark.source is None:
            return
        for number in mark.source.unique().tolist():
            rows = mark.row[mark.source == number].unique().tolist()
            self.elsewhere.setdefault(number, set()).update(rows)


def is_projection(module: nn.Module) -> bool:
    """Whether a module multiplies by a stored matrix: Linear (quantised ones too) or Conv1D."""
    if isinstance(module, nn.Linear | Conv1D):
        return True
    sizes = (getattr(module, "in_features", None), getattr(module, "out_features", None))
    single = next(module.children(), None) is None  # an attention module may have sizes as well
    return single and all(isinstance(size, int) for size in sizes)
