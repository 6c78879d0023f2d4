"""What a training step needs in memory each way to run it, and the choice among them."""

from longseal.tuning.memory.estimate import free_bytes, step_bytes
from longseal.tuning.memory.plan import Plan, fitting_plan, known_plan

__all__ = [
    "Plan",
    "fitting_plan",
    "free_bytes",
    "known_plan",
    "step_bytes",
]
