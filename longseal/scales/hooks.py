"""The hooks that scale: pre-hooks of the output projections, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel

from longseal.errors import LongsealError

#: What a projection's input, `(..., channels)`, is multiplied by: `(channels,)` or anything that
#: broadcasts with the input, in float32; None leaves it as it is.
Factor = Callable[[Tensor], Tensor | None]


class Scaling:
    """Pre-hook of an output projection: multiplies its input.

    The product with a float32 factor is made in float32 (torch promotes) and rounded once.
    """

    def __init__(self, factor: Factor) -> None:
        self.factor = factor

    def __call__(self, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """The module's arguments, the first one scaled; None leaves them as they are."""
        hidden: Tensor = args[0]
        factor = self.factor(hidden)
        if factor is None:
            return None
        return ((hidden * factor.to(hidden.device)).to(hidden.dtype), *args[1:])


@contextmanager
def scaling(network: PreTrainedModel, factors: Mapping[str, Factor]) -> Iterator[None]:
    """Scale the inputs of the named modules inside the block; nothing of it is left after."""
    with ExitStack() as handles:
        for name, factor in factors.items():
            handle = network.get_submodule(name).register_forward_pre_hook(Scaling(factor))
            handles.callback(handle.remove)
        yield


def scaled_by(network: PreTrainedModel) -> str:
    """A hash of what is attached: which inputs are multiplied by what, and what PEFT's layers add.

    Empty where nothing is attached.
    """
    seen = sha256()
    scaled = False
    for name, module in network.named_modules():
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, Scaling) and (factor := hook.factor(_ones(module))) is not None:
                scaled = True
                seen.update(name.encode())
                seen.update(_bytes(factor))
        if hasattr(module, "lora_A"):  # one of PEFT's layers
            scaled = True
            seen.update(f"{name} {module.scaling}".encode())
            for part, parameter in module.named_parameters():
                if part.startswith("lora_"):
                    seen.update(part.encode())
                    seen.update(_bytes(parameter))
    return seen.hexdigest()[:16] if scaled else ""


def _bytes(tensor: Tensor) -> bytes:
    made: bytes = tensor.detach().float().cpu().contiguous().numpy().tobytes()
    return made


def _ones(module: nn.Module) -> Tensor:
    """An input that a factor can be asked for: `(1, 1, 1)`."""
    return next(module.parameters()).new_ones(1, 1, 1)


def refuse_attached(network: nn.Module) -> None:
    """Refuse a network that is scaled.

    Raises:
        LongsealError: scales are attached already.
    """
    hooks = (hook for m in network.modules() for hook in m._forward_pre_hooks.values())
    if any(isinstance(hook, Scaling) for hook in hooks):
        raise LongsealError(
            "scales are attached to this model already: detach them first, or attach several "
            "adapters together with longseal.attached"
        )
