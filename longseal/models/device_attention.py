"""The attention kernels that suit a device."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

_FUSED = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def device_attention(device: torch.device) -> AbstractContextManager[None]:
    """Prefer the fastest kernels of the GPU inside the block: cuDNN's from Hopper on, else flash.

    Where a kernel cannot run a layer (for its mask, its width, its dtype), torch takes the next.
    CPU and MPS have no choice.
    """
    if device.type != "cuda":
        return nullcontext()
    hopper = torch.cuda.get_device_capability(device) >= (9, 0)
    order = [SDPBackend.CUDNN_ATTENTION, *_FUSED] if hopper else _FUSED
    kernels: AbstractContextManager[None] = sdpa_kernel(order, set_priority=True)
    return kernels
