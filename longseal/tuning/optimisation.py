"""The optimiser: AdamW on what is learned, and how far each step may go."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from longseal.config import Kind
from longseal.tuning.learned import Learned

#: How far a number may go in all steps at one training length: their learning rates together.
MOVEMENT: Mapping[Kind, float] = {"channel": 0.32, "head": 0.6, "lora": 0.02, "dora": 0.02}
#: The learning rates of the paper (appendix; line retrieval).
PAPER_RATE: Mapping[Kind, float] = {"channel": 2e-2, "head": 1e-2, "lora": 2e-4, "dora": 2e-4}

#: The learning rate of a step, from 0.
Rate = Callable[[int], float]


def falling(budget: float, steps: int) -> Rate:
    """Rates that fall in a line to 0, and whose sum is the budget.

    Adam moves each number by about the learning rate at every step, so the rates of all steps
    together bound the way that a number can go.
    """
    return lambda step: budget * 2 * (steps - step) / (steps * (steps + 1))


def constant(rate: float) -> Rate:
    """The paper's schedule: the same rate at every step."""
    return lambda step: rate


class Optimiser:
    """AdamW's state of what is learned; no weight decay (design, decision 2)."""

    def __init__(self, learned: Learned) -> None:
        self._parameters = learned.parameters
        self._adam = torch.optim.AdamW(
            list(self._parameters.values()), lr=0.0, betas=(0.9, 0.95), weight_decay=0.0
        )

    def step(self, rate: float) -> None:
        """Move every number by about `rate`, and clear the gradients."""
        for group in self._adam.param_groups:
            group["lr"] = rate
        self._adam.step()
        self.clear()

    def clear(self) -> None:
        """Forget the gradients."""
        self._adam.zero_grad()

    def state(self) -> dict[str, Tensor]:
        """What the next step depends on, beside the numbers themselves."""
        tensors: dict[str, Tensor] = {}
        for name, parameter in self._parameters.items():
            adam = self._adam.state[parameter]
            tensors |= {f"{name}/{moment}": adam[moment] for moment in _MOMENTS}
        return tensors

    def restore(self, state: Mapping[str, Tensor], steps: int) -> None:
        """Go back to a state after `steps` steps."""
        for name, parameter in self._parameters.items():
            moments = {moment: state[f"{name}/{moment}"].clone() for moment in _MOMENTS}
            self._adam.state[parameter] = {
                "step": torch.tensor(float(steps)),
                **{moment: value.to(parameter.device) for moment, value in moments.items()},
            }


_MOMENTS = ("exp_avg", "exp_avg_sq")
