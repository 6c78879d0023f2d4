"""The steps of a tuning run, kept as they go, so that it can be resumed and chosen from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from longseal.config import Kind
from longseal.files import new_file
from longseal.models.sites import Site
from longseal.scales import Scales


@dataclass(frozen=True, eq=False)
class Optimisation:
    """Deltas that are being learned, and AdamW's state of them.

    The learning rate is not a setting. Adam moves each number by about the rate at every step, so
    the rates of all steps together bound the way a scale can go: that is the budget.

    Attributes:
        scales: the live deltas; they require gradients.
        adam: AdamW without weight decay (design, decision 2).
    """

    scales: Scales
    adam: torch.optim.AdamW

    @classmethod
    def of(cls, kind: Kind, sites: tuple[Site, ...]) -> Optimisation:
        """Start from scales that change nothing."""
        scales = Scales.zeros(kind, sites)
        deltas = [delta.requires_grad_(True) for delta in scales.deltas.values()]
        return cls(scales, torch.optim.AdamW(deltas, lr=0.0, betas=(0.9, 0.95), weight_decay=0.0))

    def step(self, rate: float) -> None:
        """Move every delta by about `rate`, and clear the gradients."""
        for group in self.adam.param_groups:
            group["lr"] = rate
        self.adam.step()
        self.adam.zero_grad()

    def snapshot(self) -> Scales:
        """The scales as they stand now."""
        return Scales(
            self.scales.kind,
            self.scales.sites,
            {name: delta.detach().clone() for name, delta in self.scales.deltas.items()},
        )

    def state(self) -> dict[str, Tensor]:
        """Everything that the next step depends on."""
        tensors: dict[str, Tensor] = {}
        for name, delta in self.scales.deltas.items():
            adam = self.adam.state[delta]
            tensors |= {
                f"delta/{name}": delta.detach(),
                f"exp_avg/{name}": adam["exp_avg"],
                f"exp_avg_sq/{name}": adam["exp_avg_sq"],
            }
        return tensors

    def restore(self, state: dict[str, Tensor], steps: int) -> None:
        """Go back to a state after `steps` steps."""
        with torch.no_grad():
            for name, delta in self.scales.deltas.items():
                delta.copy_(state[f"delta/{name}"])
                self.adam.state[delta] = {
                    "step": torch.tensor(float(steps)),
                    "exp_avg": state[f"exp_avg/{name}"].clone(),
                    "exp_avg_sq": state[f"exp_avg_sq/{name}"].clone(),
                }


class Trajectory:
    """The scales after every step, in memory, and on disk where a folder is given."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self.scales: list[Scales] = []

    def keep(self, optimisation: Optimisation) -> None:
        """Add the step that was just made."""
        self.scales.append(optimisation.snapshot())
        if self._folder is not None:
            with new_file(self._path(len(self.scales))) as partial:
                save_file(optimisation.state(), partial)

    def resume(self, optimisation: Optimisation) -> None:
        """Take up the steps that the folder holds, up to the first that is missing or damaged."""
        state = None
        while (found := self._read(len(self.scales) + 1)) is not None:
            state = found
            optimisation.restore(state, len(self.scales) + 1)
            self.scales.append(optimisation.snapshot())

    def _read(self, step: int) -> dict[str, Tensor] | None:
        if self._folder is None or not self._path(step).is_file():
            return None
        try:
            return load_file(self._path(step))
        except SafetensorError:
            return None

    def _path(self, step: int) -> Path:
        assert self._folder is not None
        return self._folder / f"step-{step:04d}.safetensors"
