"""Memory of a CPU process that goes back to the system as soon as a tensor is gone."""

from __future__ import annotations

import ctypes
import platform

_MMAP_THRESHOLD = -3  # M_MMAP_THRESHOLD of glibc's malloc.h
_BYTES = 2**20


def give_back_freed() -> None:
    """Have glibc map every large tensor by itself, from here on in this process.

    By itself it takes tensors of up to 32 MiB from its heap, where those that are kept leave holes
    between them that later ones do not fit into: several times what a checkpointed step needs.
    Costs some percent of its time. Other C libraries are left alone.
    """
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, _BYTES)
