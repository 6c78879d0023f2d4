"""Telling one base from another: a few weights of every tensor, as numbers.

Numbers rather than a hash, so that the same weights are recognised in another dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from longseal.errors import LongsealError

_SAMPLES = 4
DTYPES = {
    str(dtype): dtype for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16)
}


@dataclass(frozen=True)
class Fingerprint:
    """Sampled weights.

    Attributes:
        dtype: the dtype that the base was loaded in, e.g. `torch.bfloat16`.
        tensors: by parameter name, the values at `places`.
    """

    dtype: str
    tensors: Mapping[str, list[float]]


def places(count: int) -> list[int]:
    """Where a flattened tensor of `count` numbers is sampled: spread evenly, ends left out."""
    return [count * (2 * i + 1) // (2 * _SAMPLES) for i in range(_SAMPLES)]


def fingerprint(network: PreTrainedModel) -> Fingerprint:
    """Sample every floating-point parameter of a network; tied ones count once."""
    return Fingerprint(
        str(network.dtype),
        {
            name: _sample(parameter)
            for name, parameter in _parameters(network)
            if parameter.is_floating_point() and parameter.numel()
        },
    )


def check(
    recorded: Fingerprint,
    dtype: torch.dtype | Callable[[str], torch.dtype],
    sampled: Callable[[str], list[float] | None],
) -> None:
    """Compare a recorded base with the one at hand, over the tensors that both have.

    In the same dtype every value has to be equal; in another one it may differ by one rounding.

    Args:
        recorded: what the adapter was made for.
        dtype: of the weights at hand, or by name where they are not all of one.
        sampled: the values at hand of the tensor with that name, None where there is none.

    Raises:
        LongsealError: the weights are another base's.
    """
    compared = 0
    for name, values in recorded.tensors.items():
        present = sampled(name)
        if present is None:
            continue
        compared += 1
        at_hand = dtype if isinstance(dtype, torch.dtype) else dtype(name)
        if not alike(values, present, recorded.dtype, at_hand):
            raise LongsealError(
                f"the adapter was made for another base: {name} holds other weights here. "
                "Use the base that the adapter names, or tune this model anew"
            )
    if compared < len(recorded.tensors) // 2 + 1:
        raise LongsealError(
            f"the adapter was made for another base: {compared} of its "
            f"{len(recorded.tensors)} tensors are here by name"
        )


def alike(was: list[float], now: list[float], recorded: str, at_hand: torch.dtype) -> bool:
    """Whether samples are equal, up to one rounding where one dtype is not the other.

    Args:
        recorded: `Fingerprint.dtype` of the first samples.
        at_hand: dtype of the second.
    """
    dtypes = {DTYPES.get(recorded, torch.bfloat16), at_hand}
    slack = max(torch.finfo(d).eps for d in dtypes) if len(dtypes) > 1 else 0.0
    return all(abs(a - b) <= slack * (abs(a) + 1e-4) for a, b in zip(was, now, strict=True))


def check_network(recorded: Fingerprint, network: PreTrainedModel) -> None:
    """Compare a recorded base with a loaded one (see `check`)."""
    parameters = dict(_parameters(network))

    def sampled(name: str) -> list[float] | None:
        return _sample(parameters[name]) if name in parameters else None

    check(recorded, network.dtype, sampled)


def _parameters(network: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    """A network's own parameters: while PEFT's layers are around its modules, without those."""
    wrapped = [n for n, module in network.named_modules() if hasattr(module, "base_layer")]
    added = tuple(f"{name}.lora_" for name in wrapped)
    for name, parameter in network.named_parameters():
        if not name.startswith(added):
            yield (name.replace(".base_layer.", ".") if added else name), parameter


def _sample(tensor: Tensor) -> list[float]:
    flat = tensor.detach().flatten()
    values = flat[torch.tensor(places(flat.numel()), device=flat.device)]
    return [float(value) for value in values.float()]
