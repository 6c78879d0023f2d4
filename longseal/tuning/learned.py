"""What is learned on a frozen network: numbers by name, and how they act on it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from longseal.config import Kind, ScaleKind
from longseal.lora import AnyAdapter, LoraAdapter, LowRank
from longseal.lora.low_rank import MAGNITUDE, UP, LowRankKind
from longseal.models.load import LanguageModel
from longseal.scales import Adapter, Scales

#: Values of everything that is learned, by name, detached and in float32.
State = Mapping[str, Tensor]


class Learned(Protocol):
    """Numbers that are learned, and that act on the network while they are attached.

    Attributes:
        kind: what they are.
    """

    @property
    def kind(self) -> Kind:
        """What they are."""
        ...

    @property
    def parameters(self) -> Mapping[str, Tensor]:
        """The live numbers, float32, by name; they require gradients."""
        ...

    @property
    def initial(self) -> State:
        """Where they start from, and the model acts unchanged."""
        ...

    def attached(self, network: PreTrainedModel) -> AbstractContextManager[None]:
        """Let them act on the network inside the block; it is bit-identical after."""
        ...

    def set(self, state: State, strength: float = 1.0) -> None:
        """Go `strength` of the way from the unchanged model (0) to `state` (1), or beyond."""
        ...

    def adapter(self, model: LanguageModel, record: dict[str, object]) -> AnyAdapter:
        """An adapter that holds them as they stand now."""
        ...


class LearnedScales:
    """Scales (kinds `head` and `channel`) as they are learned: deltas that start from 0."""

    def __init__(self, kind: ScaleKind, model: LanguageModel) -> None:
        self._scales = Scales.zeros(kind, model.sites)
        self.initial: State = Scales.zeros(kind, model.sites).deltas
        for delta in self._scales.deltas.values():
            delta.requires_grad_(True)

    @property
    def kind(self) -> Kind:
        """`head` or `channel`."""
        return self._scales.kind

    @property
    def parameters(self) -> Mapping[str, Tensor]:
        """The deltas by site name."""
        return self._scales.deltas

    def attached(self, network: PreTrainedModel) -> AbstractContextManager[None]:
        """Scale the network's heads inside the block."""
        return self._scales.attached(network)

    def set(self, state: State, strength: float = 1.0) -> None:
        """Make every delta `strength` times that of the state."""
        with torch.no_grad():
            for name, delta in self._scales.deltas.items():
                delta.copy_(state[name] * strength)

    def adapter(self, model: LanguageModel, record: dict[str, object]) -> Adapter:
        """The scales as an adapter."""
        return Adapter.of(model, self._scales.times(1.0), record)


class LearnedLora:
    """Low-rank updates (kinds `lora` and `dora`) as they are learned, through PEFT's layers."""

    def __init__(self, kind: LowRankKind, model: LanguageModel, seed: int) -> None:
        made = LowRank.initial(kind, model, seed)
        self._parameters = {name: nn.Parameter(tensor) for name, tensor in made.tensors.items()}
        self._updates = replace(made, tensors=self._parameters)
        self.initial: State = {name: tensor.clone() for name, tensor in made.tensors.items()}

    @property
    def kind(self) -> Kind:
        """`lora` or `dora`."""
        return self._updates.kind

    @property
    def parameters(self) -> Mapping[str, Tensor]:
        """`A`, `B` and magnitudes, by their names in PEFT's file."""
        return self._parameters

    def attached(self, network: PreTrainedModel) -> AbstractContextManager[None]:
        """Put PEFT's layers around the network's projections inside the block."""
        return self._updates.attached(network)

    def set(self, state: State, strength: float = 1.0) -> None:
        """Make `B`, and how far magnitudes are from the weights' own, `strength` times the state's.

        `A` is the state's: the update is `B A`, so its size goes by `B` alone.
        """
        with torch.no_grad():
            for name, parameter in self._parameters.items():
                value = state[name].to(parameter.device)
                if name.endswith(UP):
                    value = value * strength
                elif name.endswith(MAGNITUDE):
                    value = torch.lerp(self.initial[name], value, strength)  # exact at 1
                parameter.copy_(value)

    def adapter(self, model: LanguageModel, record: dict[str, object]) -> LoraAdapter:
        """The updates as an adapter."""
        return LoraAdapter.of(model, self._updates, record)


def learned_of(kind: Kind, model: LanguageModel, seed: int) -> Learned:
    """What is learned in tuning that kind, before the first step; whatever is random by the seed.

    Raises:
        LongsealError: the model has something that cannot be adapted.
    """
    if kind == "lora" or kind == "dora":
        return LearnedLora(kind, model, seed)
    return LearnedScales(kind, model)


def snapshot(learned: Learned) -> dict[str, Tensor]:
    """The numbers as they stand now."""
    return {name: value.detach().clone() for name, value in learned.parameters.items()}
