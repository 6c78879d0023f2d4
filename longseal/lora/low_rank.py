"""What a low-rank adapter holds, and how PEFT's layers are put around a network's projections."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from longseal.errors import LongsealError
from longseal.models.load import LanguageModel
from longseal.models.projections import attention_projections
from longseal.scales.hooks import refuse_attached

if TYPE_CHECKING:
    from peft import LoraConfig

LowRankKind = Literal["lora", "dora"]

#: The paper's rank (section 3), and PEFT's own default of alpha: an update counts alpha / rank = 2
#: times. The paper does not give its alpha.
RANK, ALPHA = 4, 8

#: Ends of the tensors' names, as PEFT writes them into its file.
DOWN, UP, MAGNITUDE = ".lora_A.weight", ".lora_B.weight", ".lora_magnitude_vector"
_NAME = "default"  # PEFT's name of an adapter in its layers


@dataclass(frozen=True, eq=False)
class LowRank:
    """Low-rank updates of projections, as PEFT applies them; all in float32.

    `lora` (https://arxiv.org/abs/2106.09685): the weight becomes `W + alpha / rank * B A`. `dora`
    (https://arxiv.org/abs/2402.09353): that, each output row scaled to the length `magnitude`.

    Attributes:
        tensors: by name, for each module `NAME.lora_A.weight`, `(rank, inputs)`,
            `NAME.lora_B.weight`, `(outputs, rank)`, and for `dora` `NAME.lora_magnitude_vector`,
            `(outputs,)`.
        fan_in_fan_out: whether the adapted modules are Conv1D, which store weights transposed.
    """

    kind: LowRankKind
    tensors: Mapping[str, Tensor]
    rank: int = RANK
    alpha: int = ALPHA
    fan_in_fan_out: bool = False

    @classmethod
    def initial(cls, kind: LowRankKind, model: LanguageModel, seed: int) -> LowRank:
        """An adapter of the query, key, value and output projections that changes nothing yet.

        `A` is drawn as PEFT draws it (Kaiming, uniform), from the seed alone; `B` is 0; magnitudes
        are the lengths of the weight's rows.

        Raises:
            LongsealError: not all of them can be adapted (`attention_projections`), or not by PEFT.
        """
        names = attention_projections(model.network, model.sites)
        modules = {name: model.network.get_submodule(name) for name in names}
        transposed = {isinstance(module, Conv1D) for module in modules.values()}
        if len(transposed) > 1:
            raise LongsealError(
                "some attention projections of this model are Conv1D and others are not, which a "
                "PEFT adapter cannot say: tune scales (--kind channel) instead"
            )
        random = torch.Generator().manual_seed(seed)
        tensors = {}
        for name, module in modules.items():
            inputs, outputs = _sizes(module)
            device = next(module.parameters()).device
            bound = 1 / sqrt(inputs)  # Kaiming's for a = sqrt(5)
            drawn = torch.empty(RANK, inputs).uniform_(-bound, bound, generator=random)
            tensors[f"{name}{DOWN}"] = drawn.to(device)
            tensors[f"{name}{UP}"] = torch.zeros(outputs, RANK, device=device)
            if kind == "dora":
                tensors[f"{name}{MAGNITUDE}"] = _lengths(module)
        made = cls(kind, tensors, fan_in_fan_out=transposed == {True})
        with made.attached(model.network):
            pass  # PEFT says now, not after an hour, what it cannot adapt
        return made

    @property
    def modules(self) -> tuple[str, ...]:
        """Paths of the adapted modules, in the network's order."""
        return tuple(name.removesuffix(DOWN) for name in self.tensors if name.endswith(DOWN))

    @property
    def count(self) -> int:
        """How many numbers are learned."""
        return sum(tensor.numel() for tensor in self.tensors.values())

    def of(self, module: str) -> dict[str, Tensor]:
        """The tensors of one module, by the end of their names."""
        return {
            end: self.tensors[f"{module}{end}"]
            for end in (DOWN, UP, MAGNITUDE)
            if f"{module}{end}" in self.tensors
        }

    def sizes(self, module: str) -> tuple[int, int]:
        """Outputs and inputs of a module."""
        return len(self.tensors[f"{module}{UP}"]), self.tensors[f"{module}{DOWN}"].shape[1]

    def change(self, module: str) -> float:
        """Frobenius norm of `alpha / rank * B A`."""
        down, up = (self.tensors[f"{module}{end}"].detach().double() for end in (DOWN, UP))
        squared = ((up.T @ up) * (down @ down.T)).sum()
        return self.alpha / self.rank * sqrt(max(float(squared), 0.0))

    def config(self, base: str = "") -> LoraConfig:
        """PEFT's settings for these updates."""
        from peft import LoraConfig, TaskType  # seconds to import: only where it is used

        return LoraConfig(
            base_model_name_or_path=base or None,
            task_type=TaskType.CAUSAL_LM,
            r=self.rank,
            lora_alpha=self.alpha,
            use_dora=self.kind == "dora",
            target_modules=list(self.modules),  # by path: a namesake elsewhere is left alone
            fan_in_fan_out=self.fan_in_fan_out,
        )

    @contextmanager
    def attached(self, network: nn.Module) -> Iterator[None]:
        """Put PEFT's layers around the modules inside the block; the network is as before after.

        Tensors that are parameters are used as they are: they may change inside the block, and
        gradients reach them.

        Raises:
            LongsealError: something is attached already, or PEFT cannot adapt a module.
        """
        from peft import inject_adapter_in_model

        _refuse_attached(network)
        places = [_Place.of(network, name) for name in self.modules]
        trained = [(parameter, parameter.requires_grad) for parameter in network.parameters()]
        try:
            try:  # on the meta device: nothing is drawn at random, nor copied
                inject_adapter_in_model(self.config(), network, _NAME, low_cpu_mem_usage=True)
            except (ValueError, RuntimeError, AttributeError, TypeError) as error:
                raise _unfit(network, self.modules, error) from error
            self._check_injected(network)
            for place in places:
                self._fill(network.get_submodule(place.name), place)
            yield
        finally:
            for place in places:
                setattr(place.parent, place.child, place.module)
            vars(network).pop("peft_config", None)
            for parameter, requires in trained:
                parameter.requires_grad_(requires)

    def _check_injected(self, network: nn.Module) -> None:
        """Refuse what PEFT did not do to the letter: fewer modules adapted, or others."""
        made = {name for name, module in network.named_modules() if hasattr(module, "lora_A")}
        wrong = sorted(made ^ set(self.modules))
        if wrong:
            raise LongsealError(
                f"PEFT adapts {'too much' if wrong[0] in made else 'too little'}: {wrong[0]}. Tune "
                "scales (--kind channel) instead"
            )

    def _fill(self, layer: nn.Module, place: _Place) -> None:
        """Give a layer of PEFT's its numbers."""
        device = next(place.module.parameters()).device
        for end, attribute in (
            (DOWN, "lora_A"),
            (UP, "lora_B"),
            (MAGNITUDE, "lora_magnitude_vector"),
        ):
            tensor = self.tensors.get(f"{place.name}{end}")
            if tensor is None:
                continue
            holder = getattr(layer, attribute)[_NAME]
            if holder.weight.shape != tensor.shape:
                raise LongsealError(
                    f"the adapter was made for another base: {place.name} takes "
                    f"{tuple(holder.weight.shape)} here, and the adapter has {tuple(tensor.shape)}"
                )
            if not isinstance(tensor, nn.Parameter):
                tensor = nn.Parameter(tensor.to(device), requires_grad=False)
            holder.weight = tensor


@dataclass(frozen=True)
class _Place:
    """Where a module hangs."""

    name: str
    parent: nn.Module
    child: str
    module: nn.Module

    @classmethod
    def of(cls, network: nn.Module, name: str) -> _Place:
        above, _, child = name.rpartition(".")
        try:
            return cls(name, network.get_submodule(above), child, network.get_submodule(name))
        except AttributeError:
            raise LongsealError(
                f"the adapter was made for another base: {name} is not here"
            ) from None


def _refuse_attached(network: nn.Module) -> None:
    refuse_attached(network)
    if any(hasattr(module, "lora_A") for module in network.modules()):
        raise LongsealError("a PEFT adapter is attached to this model already: detach it first")


def _unfit(network: nn.Module, names: Sequence[str], error: Exception) -> LongsealError:
    """The error of PEFT in a line; it goes by order, so the first module left alone is to blame."""
    left = (name for name in names if not hasattr(network.get_submodule(name), "lora_A"))
    first = (str(error).splitlines() or [type(error).__name__])[0]
    return LongsealError(
        f"PEFT cannot adapt {next(left, names[-1])}, and all of q, k, v and output are adapted or "
        f"none: {first}. Tune scales (--kind channel) instead"
    )


def _sizes(module: nn.Module) -> tuple[int, int]:
    """Inputs and outputs of a projection."""
    if isinstance(module, Conv1D):
        return module.nx, module.nf
    inputs, outputs = module.in_features, module.out_features
    assert isinstance(inputs, int)
    assert isinstance(outputs, int)
    return inputs, outputs


def _lengths(module: nn.Module) -> Tensor:
    """Lengths of the rows of a weight that may be packed: `(outputs,)`, in float32.

    PEFT rounds its own to the base's dtype, with which unchanged would not be unchanged.
    """
    from peft.utils.integrations import dequantize_module_weight

    weight: Tensor = dequantize_module_weight(module).detach().float()
    lengths: Tensor = torch.linalg.norm(weight.T if isinstance(module, Conv1D) else weight, dim=1)
    return lengths
