"""Ways to run a step in less memory: what is not kept is computed again in the backward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any, Literal

import torch
from torch import nn
from torch.autograd.graph import save_on_cpu
from torch.utils.checkpoint import (
    checkpoint,
    create_selective_checkpoint_contexts,
    noop_context_fn,
)
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from longseal.models.instead import instead
from longseal.models.saving.allocator import give_back_freed
from longseal.models.saving.tiles import tiled, wide_parts

#: From the fastest to the smallest:
#: everything: all that autograd saves is kept;
#: attention: each layer's input and attention outputs, the rest of the layer is run again;
#: layers: each layer's input, the layer is run again;
#: tiles: so too, and its MLP a tile of tokens at a time, never the whole row at its full width;
#: offload: so too, and the layers' inputs wait in CPU memory.
Way = Literal["everything", "attention", "layers", "tiles", "offload"]

_KERNELS = (
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
)
_ATTENTION = [getattr(torch.ops.aten, n).default for n in _KERNELS if hasattr(torch.ops.aten, n)]


def ways(network: PreTrainedModel) -> tuple[Way, ...]:
    """The ways that make a difference to this network on its device, in order."""
    found: list[Way] = ["everything"]
    if not _layers(network):
        return tuple(found)
    device = network.device.type
    if device in ("cpu", "cuda"):  # elsewhere attention is no kernel whose output could be kept
        found.append("attention")
    found.append("layers")
    if _wide(network):
        found.append("tiles")
    if device == "cuda":
        found.append("offload")
    return tuple(found)


@contextmanager
def saving(network: PreTrainedModel, way: Way) -> Iterator[None]:
    """Run layers so inside the block; the backward pass has to be in it too.

    Set on the layers themselves: transformers' own switch wants them in training mode, which may
    turn dropout on, and may force gradients into the embeddings.
    """
    with ExitStack() as stack:
        if way in ("tiles", "offload"):
            for part in _wide(network):
                stack.enter_context(instead(part, tiled))
        if way != "everything":
            if network.device.type == "cpu":
                give_back_freed()
            for layer in _layers(network):
                stack.enter_context(instead(layer, partial(_run_again, way)))
        yield


def _layers(network: PreTrainedModel) -> list[nn.Module]:
    return [m for m in network.modules() if isinstance(m, GradientCheckpointingLayer)]


def _wide(network: PreTrainedModel) -> Sequence[nn.Module]:
    return [part for layer in _layers(network) for part in wide_parts(network, layer)]


def _run_again(way: Way, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A layer's pass that keeps its input; the first of `args` is `(1, tokens, hidden)`."""
    if not torch.is_grad_enabled():
        return forward(*args, **kwargs)
    needed = bool(args) and args[0].requires_grad  # else nothing is scaled below this layer
    with _in_cpu_memory() if way == "offload" and needed else nullcontext():
        return checkpoint(
            forward,
            *args,
            use_reentrant=False,
            preserve_rng_state=False,  # there is no dropout
            context_fn=_keeping_attention if way == "attention" else noop_context_fn,
            **kwargs,
        )


def _in_cpu_memory() -> AbstractContextManager[None]:
    return save_on_cpu(pin_memory=torch.cuda.is_available())


def _keeping_attention() -> Any:
    return create_selective_checkpoint_contexts(_ATTENTION)
