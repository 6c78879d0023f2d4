"""What a run cost, and on what."""

from __future__ import annotations

import platform
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import psutil
import torch


def peak_memory(device: torch.device) -> int:
    """Most bytes in use so far: on the GPU where the model is on one, of the process elsewhere."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    try:
        import resource
    except ImportError:  # Windows
        return int(getattr(psutil.Process().memory_info(), "peak_wset", 0))
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def memory_now(device: torch.device) -> int:
    """Bytes in use now: on the GPU where the model is on one, of the process elsewhere."""
    if device.type == "cuda":
        return int(torch.cuda.memory_allocated(device))
    return int(psutil.Process().memory_info().rss)


def versions() -> dict[str, str]:
    """Versions that results depend on."""
    packages = ("longseal", "torch", "transformers", "peft")
    return {"python": platform.python_version()} | {name: version(name) for name in packages}


def machine(device: torch.device) -> str:
    """The machine in words."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    memory = psutil.virtual_memory().total / 2**30
    return f"{platform.machine()}, {torch.get_num_threads()} threads, {memory:.0f} GiB"


def session(device: torch.device) -> dict[str, Any]:
    """The record of one call: what was called, with what, on what and when."""
    return {
        "event": "session",
        "command": ["longseal", *sys.argv[1:]],
        "versions": versions(),
        "machine": machine(device),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }
