"""Whether a checkpoint is the base that an adapter was made for."""

from __future__ import annotations

import torch

from longseal.errors import LongsealError
from longseal.fold.checkpoint import Checkpoint
from longseal.fold.names import Names
from longseal.lora import AnyAdapter
from longseal.models.fingerprint import Fingerprint, alike, check


def check_base(checkpoint: Checkpoint, names: Names, adapter: AnyAdapter) -> None:
    """Refuse a checkpoint that holds other weights than the adapter's base, or more, or fewer.

    Raises:
        LongsealError: so it does.
    """
    known = adapter.base_fingerprint
    if known is None:
        return

    def sampled(name: str) -> list[float] | None:
        source = names.find(name)
        if source is None or source.changed:
            return None
        return checkpoint.sampled(source.key, source.rows)

    def dtype(name: str) -> torch.dtype:
        source = names.find(name)
        found = None if source is None else checkpoint.dtype(source.key)
        assert found is not None  # only asked where there are samples
        return found

    check(known, dtype, sampled)
    _refuse_fewer(names, known, adapter.base)
    _refuse_more(checkpoint, names, known, adapter.base)


def _refuse_fewer(names: Names, known: Fingerprint, base: str) -> None:
    absent = [name for name in known.tensors if names.find(name) is None]
    if absent and names.network is not None:
        raise LongsealError(
            f"the adapter was made for another base ({base}): it had {absent[0]}, which is not here"
        )


def _refuse_more(checkpoint: Checkpoint, names: Names, known: Fingerprint, base: str) -> None:
    """Refuse a parameter that the base lacked, such as an output embedding of its own.

    What a network does not load (buffers, layers for multi-token prediction) and what it ties is
    none: tensors of equal values become one parameter.
    """
    if set(checkpoint.tensors) <= known.tensors.keys() or names.network is None:
        return
    parameters = dict(names.network.named_parameters(remove_duplicate=False))
    for name in parameters.keys() - known.tensors.keys():
        source = names.find(name)
        if source is None or source.changed:
            continue
        if any(names.find(other) == source for other in known.tensors):
            continue  # tied, and stored once
        here, dtype = checkpoint.sampled(source.key, source.rows), checkpoint.dtype(source.key)
        if here is None or dtype is None:
            continue
        if not any(alike(was, here, known.dtype, dtype) for was in known.tensors.values()):
            raise LongsealError(
                f"the adapter was made for another base ({base}): {source.key} is here, and that "
                "base had no such parameter"
            )
