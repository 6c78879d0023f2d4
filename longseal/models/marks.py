"""What the tensors of a forward pass carry: which head's output, which row of which projection.

A mark follows its tensor through views and casts, element by element, so that the input of an
output projection says of each channel which head it is and where its value came from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Mark:
    """What one tensor carries; planes are int64 of the tensor's shape, -1 where there is nothing.

    Attributes:
        sources: the projections that the tensor depends on, back to the nearest ones.
        source, row: of each element, the projection that gave it and the row of its output.
        head: of each element, the head that it belongs to.
        probabilities: whether these are heads' attention probabilities; else heads' outputs.
        broken: what stands between the rows and these elements that a factor does not pass.
        feeding: of probabilities and heads' outputs, the nearest projections that their queries,
            keys and values depend on.
    """

    sources: frozenset[int] = frozenset()
    source: Tensor | None = None
    row: Tensor | None = None
    head: Tensor | None = None
    probabilities: bool = False
    broken: str | None = None
    feeding: frozenset[int] = frozenset()

    @property
    def exact(self) -> bool:
        """Whether a factor on the rows is the same factor on these elements."""
        return self.row is not None and self.broken is None

    @property
    def output(self) -> bool:
        """Whether these are heads' outputs."""
        return self.head is not None and not self.probabilities

    @property
    def planes(self) -> bool:
        """Whether anything is known of single elements."""
        return self.head is not None or self.row is not None

    def mapped(self, rearrange: Callable[[Tensor], Tensor]) -> Mark:
        """The same mark, each plane rearranged."""

        def done(plane: Tensor | None) -> Tensor | None:
            return None if plane is None else rearrange(plane)

        return replace(self, source=done(self.source), row=done(self.row), head=done(self.head))

    def agrees(self, other: Mark) -> bool:
        """Whether both came from the same rows, element by element."""
        mine, theirs = (self.row, self.source), (other.row, other.source)
        return all(
            a is not None and b is not None and torch.equal(a, b)
            for a, b in zip(mine, theirs, strict=True)
        )


def rows_of(projection: int, output: Tensor) -> Mark:
    """The mark of a projection's output, `(..., rows)`."""
    row = torch.arange(output.shape[-1], device=output.device).expand(output.shape)
    return Mark(frozenset([projection]), torch.full_like(row, projection), row)


def joined(
    parts: Sequence[tuple[Tensor, Mark | None]], join: Callable[[list[Tensor]], Tensor]
) -> Mark:
    """The mark of tensors put together (`cat`, `stack`); `join` does it to one plane of each."""
    known = [mark for _, mark in parts if mark is not None]

    return _together(known, lambda name: join([_plane(name, *part) for part in parts]))


def written(target: Tensor, before: Mark | None, index: Any, mark: Mark | None) -> Mark:
    """The mark of `target` after `target[index] = tensor`; `mark` is None where that had none."""

    def overwrite(name: str) -> Tensor:
        made = _plane(name, target, before).clone()
        plane = None if mark is None else getattr(mark, name)
        made[index] = -1 if plane is None else plane
        return made

    return _together([m for m in (mark, before) if m is not None], overwrite)


def _together(known: Sequence[Mark], plane: Callable[[str], Tensor]) -> Mark:
    """One mark of several; `plane` makes the plane of that name, where any of them has it."""

    def whole(name: str) -> Tensor | None:
        return None if all(getattr(mark, name) is None for mark in known) else plane(name)

    return Mark(
        sources_of(known),
        whole("source"),
        whole("row"),
        whole("head"),
        any(mark.probabilities for mark in known),
        next((mark.broken for mark in known if mark.broken), None),
        feeding_of(known),
    )


def sources_of(marks: Iterable[Mark | None]) -> frozenset[int]:
    """The projections that tensors with these marks depend on."""
    return frozenset[int]().union(*(mark.sources for mark in marks if mark is not None))


def feeding_of(marks: Iterable[Mark]) -> frozenset[int]:
    """The projections behind the queries, keys and values of tensors with these marks."""
    return frozenset[int]().union(*(mark.feeding for mark in marks))


def _plane(name: str, tensor: Tensor, mark: Mark | None) -> Tensor:
    plane: Tensor | None = None if mark is None else getattr(mark, name)
    return nothing(tensor) if plane is None else plane


def nothing(tensor: Tensor) -> Tensor:
    """A plane that says nothing about `tensor`."""
    return torch.full(tensor.shape, -1, dtype=torch.int64, device=tensor.device)


def attended(
    product: Callable[[Tensor, Tensor], Tensor], probabilities: Mark, values: Mark
) -> Mark:
    """The mark of heads' outputs: `product` of probabilities and values, which sums over the keys.

    Whatever the layout, a plane that goes through the product itself, with ones on the other side,
    comes out as the sum of what it held; divided by the number of keys, as what all of them held.

    Args:
        product: the operation, of (plane of the probabilities, plane of the values).
        probabilities: each one's head, and what they come from.
        values: of the values; without rows where they are not known.
    """

    def through(left: Tensor, right: Tensor) -> Tensor:
        mean = product(left.double(), right.double()) / count
        square = product(left.double().square(), right.double().square()) / count
        alike = (square - mean.square()).abs() <= 1e-9 * (1 + square)  # no two held another
        return torch.where(alike, mean.round(), -1).long()

    heads = _some(probabilities.head)
    ones = torch.ones_like(heads, dtype=torch.float64)
    rows, source = _some(values.row), _some(values.source)
    like = torch.ones_like(rows, dtype=torch.float64)
    count = product(ones, like)
    return replace(
        values,
        source=through(ones, source),
        row=through(ones, rows),
        head=through(heads, like),
        feeding=probabilities.feeding | values.sources,
    )


def _some(plane: Tensor | None) -> Tensor:
    assert plane is not None
    return plane


def probabilities_of(weights: Tensor, *scored: Mark | None) -> Mark:
    """The mark of `(..., heads, queries, keys)`: every dimension before the last two is heads.

    Args:
        scored: the marks of what the probabilities were made from.
    """
    shape = weights.shape
    heads = torch.arange(shape[:-2].numel(), device=weights.device).view(*shape[:-2], 1, 1)
    return Mark(head=heads.expand(shape), probabilities=True, feeding=sources_of(scored))


def values_of(mark: Mark | None, value: Tensor) -> Mark:
    """The mark of values, with rows that say nothing where none are known."""
    if mark is not None and mark.row is not None:
        return replace(mark, head=None)
    rows = nothing(value)
    return Mark(sources_of([mark]), rows, rows, broken="a step that mixes them")


def spreads(tensor: Tensor, result: Tensor) -> bool:
    """Whether each element of a result has its own element of this operand, if need be repeated."""
    if tensor.ndim != result.ndim:
        return False
    return all(a in (b, 1) for a, b in zip(tensor.shape, result.shape, strict=True))
