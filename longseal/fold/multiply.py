"""Multiply parts of a checkpoint's tensors in place, a few rows in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite, prod, sqrt
from pathlib import Path

import torch
from torch import Tensor

from longseal.errors import LongsealError
from longseal.fold.changes import Change
from longseal.fold.safetensors_file import read_rows, write_rows

_NUMBERS = 2**20  # numbers in memory at a time: they and their products fit a processor's cache


@dataclass
class Rounding:
    """How far the written weights are from the exact products, over all that was scaled.

    Attributes:
        largest: largest error of a weight, relative to the largest weight of its tensor.
        squared_error, squared: sums over all scaled weights of error and of product, squared.
    """

    largest: float = 0.0
    squared_error: float = 0.0
    squared: float = 0.0

    @property
    def rms(self) -> float:
        """Root mean square of the errors, relative to that of the weights."""
        return sqrt(self.squared_error / self.squared) if self.squared else 0.0


def multiply(path: Path, change: Change, rounding: Rounding) -> None:
    """Apply a change to a shard in place.

    Products are made in float32 (float64 where the weight is) and rounded once (design, decision
    3); all other bytes stay as they are.

    Args:
        rounding: what rounding did is added here.

    Raises:
        LongsealError: a product cannot be held by the weight's dtype.
    """
    dtype = change.entry.dtype
    assert dtype is not None
    wide = torch.promote_types(dtype, torch.float32)
    error = weight = 0.0
    for rows in _blocks(change):
        factor, scaled = _factors(change, rows)
        if not bool(scaled.any()):
            continue
        product = read_rows(path, change.entry, rows).to(wide)
        product *= factor
        folded = product.to(dtype)
        write_rows(path, change.entry, rows, folded)
        if not bool(scaled.all()):
            product, folded = _only(product, scaled), _only(folded, scaled)
        here, wrong = measured(change.key, product, folded, rounding)
        weight, error = max(weight, here), max(error, wrong)
    rounding.largest = max(rounding.largest, error / weight if weight else 0.0)


def measured(key: str, exact: Tensor, folded: Tensor, rounding: Rounding) -> tuple[float, float]:
    """The largest of some weights, and the largest error of rounding; `exact` is overwritten.

    Args:
        key: the tensor that they are of.
        rounding: the squares are added here.

    Raises:
        LongsealError: a weight cannot be held by the dtype of `folded`.
    """
    rounding.squared += _squared(exact)
    largest, wrong = _largest(exact), 0.0
    if folded.dtype != exact.dtype:
        exact -= folded.to(exact.dtype)  # widened first: torch is slow at mixed operands
        rounding.squared_error += _squared(exact)
        wrong = _largest(exact)
    if not isfinite(largest + wrong):
        raise LongsealError(
            f"{key} would hold values that are no finite numbers in "
            f"{str(folded.dtype).removeprefix('torch.')}: fold into a base of a wider dtype"
        )
    return largest, wrong


def _blocks(change: Change) -> Iterator[range]:
    columns = max(1, prod(change.entry.shape[1:]))
    step = max(1, _NUMBERS // columns)
    for start in range(change.rows.start, change.rows.stop, step):
        yield range(start, min(start + step, change.rows.stop))


def _factors(change: Change, rows: range) -> tuple[Tensor, Tensor]:
    """Factor and mask for some rows of the stored tensor: `(1, columns)` or `(len(rows), 1)`."""
    if change.axis == 1:
        return change.factor[None], change.scaled[None]
    first = change.rows.start
    part = slice(rows.start - first, rows.stop - first)
    return change.factor[part, None], change.scaled[part, None]


def _only(tensor: Tensor, scaled: Tensor) -> Tensor:
    """The scaled rows or columns of a block."""
    return tensor[scaled[:, 0]] if scaled.shape[1] == 1 else tensor[:, scaled[0]]


def _largest(tensor: Tensor) -> float:
    """The largest absolute value; NaN where there is one."""
    low, high = tensor.aminmax()
    return max(float(high), -float(low))


def _squared(tensor: Tensor) -> float:
    flat = tensor.reshape(-1)
    return float(flat @ flat)
