"""Call something else in the place of a module's `forward`, for the length of a block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch import nn


@contextmanager
def instead(module: nn.Module, call: Callable[..., Any]) -> Iterator[None]:
    """Call `call(forward, ...)` in the place of the module's `forward(...)`."""
    own = vars(module).get("forward")  # there where accelerate has put it
    vars(module)["forward"] = partial(call, module.forward)
    try:
        yield
    finally:
        if own is None:
            del vars(module)["forward"]
        else:
            vars(module)["forward"] = own
