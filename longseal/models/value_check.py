"""Claims about weights, tried out: that a projection is a plain product, that rows give values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - its usual name
from transformers.pytorch_utils import Conv1D


def is_plain(module: nn.Module) -> bool | None:
    """Whether a projection gives the product with its weight, plus its bias, and nothing else.

    None where that cannot be tried: its weight is packed (quantised) or not in memory.
    """
    weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
    if not isinstance(weight, Tensor) or weight.ndim != 2 or weight.is_meta:
        return None
    if not weight.is_floating_point() or weight.dtype.itemsize == 1:
        return None
    matrix = weight.T if isinstance(module, Conv1D) else weight
    random = torch.Generator().manual_seed(0)
    given = torch.randn(1, 3, matrix.shape[1], generator=random).to(weight)
    with torch.no_grad():
        try:
            found = module(given)
        except (RuntimeError, TypeError, ValueError):
            return False
        wanted = F.linear(given, matrix, bias)
    return found.shape == wanted.shape and _close(found, wanted, wanted)


def values_hold(
    network: nn.Module,
    forward: Callable[[], Tensor],
    plain: Tensor,
    inputs: Mapping[str, Tensor],
    outputs: Mapping[str, Tensor],
) -> bool:
    """Whether factors on projections' outputs do what factors on other projections' inputs do.

    Args:
        forward: gives the logits of a short pass; `plain` are those without factors.
        inputs: by path, factors of the input's channels, `(channels,)`.
        outputs: by path, factors of the output's rows, `(rows,)`.
    """
    with torch.no_grad():
        with _scaled(network, inputs, {}):
            wanted = forward()
        with _scaled(network, {}, outputs):
            found = forward()
    return _close(found, wanted, wanted - plain)


def _close(found: Tensor, wanted: Tensor, effect: Tensor) -> bool:
    """Whether two tensors differ by no more than rounding, beside what is looked for."""
    share = 1e-3 if found.dtype in (torch.float32, torch.float64) else 0.1
    difference = (found.float() - wanted.float()).square().mean().sqrt()
    return bool(difference <= share * effect.float().square().mean().sqrt())


@contextmanager
def _scaled(
    network: nn.Module, inputs: Mapping[str, Tensor], outputs: Mapping[str, Tensor]
) -> Iterator[None]:
    def before(factor: Tensor) -> Callable[..., Any]:
        return lambda _, args: (args[0] * factor.to(args[0]), *args[1:])

    def after(factor: Tensor) -> Callable[..., Any]:
        return lambda _, __, output: output * factor.to(output)

    with ExitStack() as hooks:
        for path, factor in inputs.items():
            handle = network.get_submodule(path).register_forward_pre_hook(before(factor))
            hooks.callback(handle.remove)
        for path, factor in outputs.items():
            handle = network.get_submodule(path).register_forward_hook(after(factor))
            hooks.callback(handle.remove)
        yield
