"""What a training step keeps in memory, measured, and checkpointing where it would not fit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import psutil
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from longseal.config import Kind
from longseal.models.load import LanguageModel
from longseal.scales import Scales
from longseal.tasks.prompt import EncodedSample
from longseal.tuning.step import loss

_SHARE = 0.5  # of the memory that is free may go to what the backward pass needs


def activation_bytes(model: LanguageModel, kind: Kind, encoded: EncodedSample) -> int:
    """Bytes that one training step on `encoded` keeps for its backward pass.

    Measured: a forward pass over a short piece of the sample counts what autograd saves, which
    grows in proportion to the tokens.
    """
    short = EncodedSample(
        encoded.context[-64:], encoded.questions, encoded.answers, encoded.source, encoded.size
    )
    scales = Scales.zeros(kind, model.sites)
    for delta in scales.deltas.values():
        delta.requires_grad_(True)
    weights = {parameter.data_ptr() for parameter in model.network.parameters()}
    saved: dict[int, int] = {}

    def count(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with (
        scales.attached(model.network),
        torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor),
    ):
        loss(model, short, backward=True)
    return sum(saved.values()) * encoded.tokens // short.tokens


def free_bytes(device: torch.device) -> int:
    """Memory that is free on the device."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return int(psutil.virtual_memory().available)


def needs_checkpointing(model: LanguageModel, kind: Kind, encoded: EncodedSample) -> bool:
    """Whether layers should be run again in the backward pass instead of being kept."""
    return activation_bytes(model, kind, encoded) > _SHARE * free_bytes(model.device)


@contextmanager
def checkpointing(network: PreTrainedModel) -> Iterator[None]:
    """Keep only each layer's input inside the block, and run the layer again when it is needed.

    Set on the layers themselves: transformers' own switch wants them in training mode, which may
    turn dropout on, and may force gradients into the embeddings.
    """
    layers = [m for m in network.modules() if isinstance(m, GradientCheckpointingLayer)]
    before = [vars(layer).get("forward") for layer in layers]
    for layer in layers:
        vars(layer)["forward"] = partial(checkpoint, layer.forward, use_reentrant=False)
    try:
        yield
    finally:
        for layer, forward in zip(layers, before, strict=True):
            if forward is None:
                del vars(layer)["forward"]
            else:
                vars(layer)["forward"] = forward
