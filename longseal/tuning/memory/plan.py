"""The choice among the ways to save memory: the fastest that fits."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass

from transformers import PreTrainedModel

from longseal.models.load import LanguageModel
from longseal.models.saving.ways import Way, saving, ways
from longseal.tasks.prompt import EncodedSample
from longseal.tuning.learned import Learned
from longseal.tuning.memory.estimate import free_bytes, step_bytes

#: Of the memory that is free, what a step may take: others use that of a CPU as well.
_SHARE = {"cpu": 0.5, "mps": 0.6, "cuda": 0.85}

_KEPT: dict[Way, str] = {
    "everything": "everything kept",
    "attention": "attention outputs kept, layers run again",
    "layers": "layers run again",
    "tiles": "layers run again, MLPs in tiles",
    "offload": "layers run again, MLPs in tiles, layers' inputs in CPU memory",
}


@dataclass(frozen=True)
class Plan:
    """How a step is run.

    Attributes:
        way: what is kept.
        need: bytes that a step takes at once, beside the weights; None where nobody looked.
        free: bytes that were free.
        further: ways that need less, in order.
    """

    way: Way
    need: int | None
    free: int
    further: tuple[Way, ...]

    @property
    def about(self) -> str:
        """The choice in a line."""
        if self.need is None:
            return f"memory: {_KEPT[self.way]}"
        return (
            f"memory: {_KEPT[self.way]} (about {self.need / 2**30:.1f} of "
            f"{self.free / 2**30:.1f} GiB free)"
        )

    @property
    def smaller(self) -> Plan | None:
        """The next way, for when memory ran out all the same; None after the last."""
        if not self.further:
            return None
        return Plan(self.further[0], None, self.free, self.further[1:])

    def saving(self, network: PreTrainedModel) -> AbstractContextManager[None]:
        """Run the network's layers so inside the block."""
        return saving(network, self.way)


def known_plan(model: LanguageModel, way: str) -> Plan | None:
    """A way by its name, wherever memory stands; None where this model cannot be run so."""
    known = ways(model.network)
    place = next((place for place, each in enumerate(known) if each == way), None)
    return None if place is None else Plan(known[place], None, 0, known[place + 1 :])


def fitting_plan(model: LanguageModel, learned: Learned, encoded: EncodedSample) -> Plan:
    """The fastest way whose step on `encoded` fits into a share of the free memory.

    The smallest where none does.

    Args:
        learned: attached already; its gradients are afterwards what they were.
        encoded: the largest sample of those to come.
    """
    free = free_bytes(model.device)
    left = ways(model.network)
    while True:
        way, left = left[0], left[1:]
        need = step_bytes(model, learned, encoded, way)
        if not left or need <= _SHARE.get(model.device.type, 0.5) * free:
            return Plan(way, need, free, left)
