"""The optimiser: AdamW on what is learned, and how far each step may go."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from longseal.config import Kind
from longseal.tuning.learned import Learned

#: How far a number may go in all steps at one training length: their learning rates together.
MOVEMENT: Mapping[Kind, float] = {"channel": 0.6, "head": 0.9, "lora": 0.02, "dora": 0.02}
#: The learning rates of the paper (appendix; line retrieval).
PAPER_RATE: Mapping[Kind, float] = {"channel": 2e-2, "head": 1e-2, "lora": 2e-4, "dora": 2e-4}

_BETA1, _BETA2 = 0.9, 0.95
_LEAST = 1e-8  # what Adam divides by at least: where no gradient is, nothing moves
_MOMENTS = ("exp_avg", "exp_avg_sq")

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
    """AdamW's state of what is learned; no weight decay (design, decision 2).

    Adam moves each number by about the rate, however little the loss depends on it. Scales are
    damped: one whose gradient is small beside the mean of all moves less, by
    `1 / (1 + mean / its own)`, so that what does not help moves little and harms little.

    Args:
        damped: False for the paper's recipe, which knows of no such thing.
    """

    def __init__(self, learned: Learned, *, damped: bool) -> None:
        self._parameters = learned.parameters
        self._damped = damped and learned.kind in ("head", "channel")
        self._adam = torch.optim.AdamW(
            list(self._parameters.values()), lr=0.0, betas=(_BETA1, _BETA2), weight_decay=0.0
        )

    def step(self, rate: float) -> None:
        """Move every number by at most about `rate`, and clear the gradients."""
        for group in self._adam.param_groups:
            group["lr"] = rate
            if self._damped:
                group["eps"] = max(_LEAST, self._mean_size())
        self._adam.step()
        self.clear()

    def _mean_size(self) -> float:
        """The mean over all numbers of what Adam will divide their gradients by in this step."""
        total, count = 0.0, 0
        for parameter in self._parameters.values():
            if parameter.grad is None:
                continue
            square = (1 - _BETA2) * parameter.grad.square()
            state, made = self._adam.state.get(parameter), 0.0
            if state:
                square += _BETA2 * state["exp_avg_sq"]
                made = float(state["step"])
            total += (square / (1 - _BETA2 ** (made + 1))).sqrt().sum().item()
            count += parameter.numel()
        return total / max(1, count)

    def clear(self) -> None:
        """Forget the gradients."""
        self._adam.zero_grad()

    def state(self) -> dict[str, Tensor]:
        """What the next step depends on, beside the numbers themselves."""
        tensors: dict[str, Tensor] = {}
        for name, parameter in self._parameters.items():
            adam = self._adam.state.get(parameter)
            if not adam:  # the loss does not depend on it
                continue
            tensors |= {f"{name}/{moment}": adam[moment] for moment in _MOMENTS}
        return tensors

    def restore(self, state: Mapping[str, Tensor], steps: int) -> None:
        """Go back to a state after `steps` steps."""
        for name, parameter in self._parameters.items():
            if f"{name}/{_MOMENTS[0]}" not in state:
                continue
            moments = {moment: state[f"{name}/{moment}"].clone() for moment in _MOMENTS}
            self._adam.state[parameter] = {
                "step": torch.tensor(float(steps)),
                **{moment: value.to(parameter.device) for moment, value in moments.items()},
            }
