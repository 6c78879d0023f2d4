"""Watch one short pass: which module receives the heads' outputs, and where values come from.

No name of a class or module is relied on: attention is a softmax over positions (or torch's own
scaled_dot_product_attention) whose result multiplies values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from longseal.models.marks import (
    Mark,
    attended,
    feeding_of,
    joined,
    probabilities_of,
    rows_of,
    sources_of,
    spreads,
    values_of,
    written,
)
from longseal.models.operations import (
    CREATING,
    JOINING,
    KEEPING,
    LINEAR,
    MIXING,
    PRODUCTS,
    QUOTIENTS,
    READING,
    REARRANGING,
    plain_name,
    writes,
)
from longseal.models.trace import Trace, is_projection


def watch(network: nn.Module, forward: Callable[[], Tensor], length: int) -> tuple[Trace, Tensor]:
    """Run `forward`, a pass over one row of `length` tokens: what was seen, and what it gives.

    `length` should be no other size in the network.
    """
    watcher = _Watcher(length)
    with torch.no_grad(), watcher.hooks(network), watcher:
        given = forward()
    received = {
        path: calls
        for path, calls in watcher.trace.inputs.items()
        if any(mark is not None for mark in calls)
    }
    return replace(watcher.trace, inputs=received), given


class _Watcher(TorchFunctionMode):
    """Sees every operation, and keeps the marks of the tensors that are alive."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.trace = Trace()
        self._length = length
        self._marks = WeakTensorKeyDictionary()
        self._modules: list[tuple[str, nn.Module]] = []
        self._in_projection = 0
        self._weights: dict[int, str] = {}

    @contextmanager
    def hooks(self, network: nn.Module) -> Iterator[None]:
        """Know what goes into and comes out of each projection, and where an operation happens."""
        handles = []
        for path, module in network.named_modules():
            known = is_projection(module)
            for parameter in module._parameters.values():
                self.trace.owners.setdefault(id(parameter), []).append(path)
            weight = getattr(module, "weight", None)
            if known and isinstance(weight, Tensor):
                self._weights[id(weight)] = path
            enter, leave = self._projection(path) if known else self._module(path, module)
            handles.append(module.register_forward_pre_hook(enter))
            handles.append(module.register_forward_hook(leave, always_call=True))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _projection(self, path: str) -> tuple[Callable[..., None], Callable[..., None]]:
        number = len(self.trace.names)
        self.trace.names.append(path)

        def enter(_: nn.Module, args: tuple[Any, ...]) -> None:
            self._in_projection += 1
            mark = self._mark(args[0]) if args else None
            if mark is not None:
                self.trace.before.setdefault(number, set()).update(mark.sources)
            if mark is None or not mark.output:
                self.trace.used_elsewhere(mark)
                mark = None
            if args:
                self.trace.inputs.setdefault(path, []).append(mark)

        def leave(_: nn.Module, __: tuple[Any, ...], output: Any) -> None:
            self._in_projection -= 1
            if isinstance(output, Tensor):
                self._marks[output] = rows_of(number, output)

        return enter, leave

    def _module(
        self, path: str, module: nn.Module
    ) -> tuple[Callable[..., None], Callable[..., None]]:
        def enter(_: nn.Module, __: tuple[Any, ...]) -> None:
            self._modules.append((path, module))

        def leave(_: nn.Module, __: tuple[Any, ...], ___: Any) -> None:
            self._modules.pop()

        return enter, leave

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        options = dict(kwargs or {})
        result = func(*args, **options)
        name = plain_name(func)
        if self._in_projection or name in CREATING:
            return result
        given = [a for arg in args for a in (arg if isinstance(arg, list | tuple) else [arg])]
        operands = [a for a in (*given, *options.values()) if isinstance(a, Tensor)]
        for operand in operands:
            whole = operand if operand._base is None else operand._base
            if path := self._weights.get(id(whole)):
                self.trace.bare.add(path)
        try:
            self._follow(name, func, args, options, operands, result)
        except (IndexError, KeyError, RuntimeError, TypeError, ValueError):  # called in a rare way
            self._lose(operands, result)
        if writes(func):
            self._overwritten(operands)
        return result

    def _follow(
        self,
        name: str,
        func: Callable[..., Any],
        args: tuple[Any, ...],
        options: dict[str, Any],
        operands: list[Tensor],
        result: Any,
    ) -> None:
        """Mark what an operation made."""
        if name == "setitem":
            target, index, value = args
            before, mark = self._mark(target), self._mark(value)
            if before is not None or mark is not None:
                self._marks[target] = written(target, before, index, mark)
        elif name in REARRANGING:
            # planes have strides of their own, which `view` may not like
            again = torch.Tensor.reshape if name == "view" else func
            self._rearrange(lambda plane: again(plane, *args[1:], **options), args[0], result)
        elif isinstance(result, tuple | list):
            if any(isinstance(piece, Tensor) for piece in result):  # a shape is a tuple too
                self._lose(operands, result)
        elif not isinstance(result, Tensor):
            if name in READING:
                self._lose(operands, None)
        elif name == "softmax" and self._over_positions(result):
            self._lose(operands, None)
            self._marks[result] = probabilities_of(result, self._mark(operands[0]))
        elif name == "scaled_dot_product_attention":
            self._attend(dict(zip(("query", "key", "value"), args, strict=False)) | options, result)
        elif name in JOINING:
            parts = [(tensor, self._mark(tensor)) for tensor in operands]
            if any(mark for _, mark in parts):
                self._marks[result] = joined(parts, lambda p: func(p, *args[1:], **options))
        elif name == "pad":
            self._rearrange(lambda plane: func(plane, args[1], value=-1), args[0], result)
        elif name in PRODUCTS and self._multiplies_values(operands):
            probabilities, values = (self._mark(tensor) for tensor in operands[:2])
            assert probabilities is not None
            words = args[:1] if name == "einsum" else ()
            self.trace.attending.append(self._modules[-1][0])
            self._marks[result] = attended(
                lambda left, right: func(*words, left, right),
                probabilities,
                values_of(values, operands[1]),
            )
        else:
            self._compute("rounding" if "rounding_mode" in options else name, operands, result)

    def _lose(self, operands: Sequence[Tensor], result: Any) -> None:
        """Nothing more is known of what an operation made than what it depends on."""
        marks = [mark for tensor in operands if (mark := self._mark(tensor))]
        for mark in marks:
            self.trace.used_elsewhere(mark)
        sources = sources_of(marks)
        for piece in result if isinstance(result, tuple | list) else [result]:
            if marks and isinstance(piece, Tensor):
                self._marks[piece] = Mark(sources)

    def _overwritten(self, operands: Sequence[Tensor]) -> None:
        """The first operand was written into: what else lies in its memory is not what it was."""
        target = operands[0]
        sources = sources_of(self._mark(tensor) for tensor in operands)
        if not sources and self._mark(target) is None:
            return
        memory = target.untyped_storage().data_ptr()
        base = target._base
        beside = [t for t in self._marks if t.untyped_storage().data_ptr() == memory]
        for tensor in [*beside, *([] if base is None else [base])]:
            if tensor is not target:
                before = self._mark(tensor)
                self.trace.used_elsewhere(before)
                self._marks[tensor] = Mark(sources | sources_of([before]))

    def _over_positions(self, weights: Tensor) -> bool:
        """Whether these are `(..., heads, queries, keys)`; there may be a few more than tokens."""
        *heads, queries, keys = weights.shape if weights.ndim > 2 else (0, 0)
        if weights.ndim == 3 and heads == [1]:  # a router's choice of experts looks like this
            return False
        return self._length <= queries <= keys < queries + self._length

    def _multiplies_values(self, operands: list[Tensor]) -> bool:
        mark = self._mark(operands[0])
        return mark is not None and mark.probabilities and len(operands) == 2

    def _rearrange(
        self, rearrange: Callable[[Tensor], Any], operand: Any, result: Tensor | Sequence[Any]
    ) -> None:
        mark = self._mark(operand)
        if mark is None:
            return
        if isinstance(result, Tensor):
            self._marks[result] = mark.mapped(rearrange)
            return

        def nth(i: int) -> Callable[[Tensor], Tensor]:
            return lambda plane: rearrange(plane)[i]

        for i, piece in enumerate(result):
            self._marks[piece] = mark.mapped(nth(i))

    def _attend(self, given: dict[str, Any], result: Tensor) -> None:
        """Fused attention: query, key and value are `(batch, heads, seq, head_dim)`."""
        query, value = given["query"], given["value"]
        scored = self._mark(query), self._mark(given["key"])
        for mark in scored:
            self.trace.used_elsewhere(mark)
        weights = torch.empty((*query.shape[:-1], value.shape[-2]), device=query.device)
        if not self._over_positions(weights):
            self._lose([value], result)
            return
        values = values_of(self._mark(value), value)
        groups = query.shape[-3] // value.shape[-3]
        if groups > 1:
            values = values.mapped(lambda plane: plane.repeat_interleave(groups, -3))
        probabilities = probabilities_of(weights, *scored)
        self.trace.attending.append(self._modules[-1][0])
        self._marks[result] = attended(torch.matmul, probabilities, values)

    def _compute(self, name: str, operands: list[Tensor], result: Tensor) -> None:
        """Any other operation: elementwise where the shape stays, else a mixture."""
        marked = [(tensor, mark) for tensor in operands if (mark := self._mark(tensor))]
        if not marked:
            return
        known = [mark for _, mark in marked]
        whole = [i for i, (t, mark) in enumerate(marked) if mark.planes and spreads(t, result)]
        if name in MIXING or not whole:
            if name in MIXING and any(mark.output for mark in known):
                where, _ = self._modules[-1]
                self.trace.refused[where] = f"{where} multiplies its heads' outputs by no module"
            self._lose(operands, result)
            return
        place = max(whole, key=lambda i: known[i].head is not None)
        leading, others = known[place], known[:place] + known[place + 1 :]
        made = leading.mapped(lambda plane: plane.broadcast_to(result.shape))
        first = marked[place][0] is operands[0]
        whole_numbers = not result.is_floating_point() or result.dtype.itemsize == 1
        if made.broken is None and (whole_numbers or not _passes(name, leading, others, first)):
            made = replace(made, broken=self._step(name))
        for mark in known if made.broken else others:
            self.trace.used_elsewhere(mark)
        self._marks[result] = replace(made, sources=sources_of(known), feeding=feeding_of(known))

    def _step(self, name: str) -> str:
        """What a user would call an operation: the small module that does it, or its own name."""
        _, module = self._modules[-1]
        small = next(module.children(), None) is None
        return type(module).__name__ if small else name

    def _mark(self, tensor: Any) -> Mark | None:
        found = self._marks.get(tensor) if isinstance(tensor, Tensor) else None
        assert found is None or isinstance(found, Mark)
        return found


def _passes(name: str, leading: Mark, others: list[Mark], first: bool) -> bool:
    """Whether a factor on the rows of `leading` is the same factor on the result."""
    if name in LINEAR or (name in QUOTIENTS and first):
        return not any(leading.sources & other.sources for other in others)
    return name in KEEPING and first and not others
