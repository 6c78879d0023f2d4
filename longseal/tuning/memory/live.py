"""Bytes of tensors that exist at the same time, counted on any device."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Live(TorchDispatchMode):
    """Inside the block, counts the storages that operations make on one device until they go.

    What a kernel uses for itself is not seen, nor is what was there before the block.

    Attributes:
        bytes: that exist now.
        peak: most so far; may be set back to `bytes`.
    """

    def __init__(self, device: torch.device, known: Iterable[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = self.peak = 0
        self._device = device
        self._known = {_key(tensor.untyped_storage()) for tensor in known}
        self._made: dict[int, weakref.ref[Any]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operation, and count what it gives back."""
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor) and tensor.device == self._device:
                self._count(tensor.untyped_storage())
        return out

    def _count(self, storage: Any) -> None:
        key, size = _key(storage), storage.nbytes()
        if key in self._known or key in self._made:
            return

        def gone(_: object) -> None:
            del self._made[key]
            self.bytes -= size

        self._made[key] = weakref.ref(storage, gone)
        self.bytes += size
        self.peak = max(self.peak, self.bytes)


def _key(storage: Any) -> int:
    address: int = storage._cdata
    return address
