"""What a training step keeps in memory: the ways to save some, what each needs, and the choice."""

from longseal.tuning.memory.estimate import free_bytes, step_bytes
from longseal.tuning.memory.plan import Plan, fitting_plan, known_plan
from longseal.tuning.memory.ways import Way, saving, ways

__all__ = [
    "Plan",
    "Way",
    "fitting_plan",
    "free_bytes",
    "known_plan",
    "saving",
    "step_bytes",
    "ways",
]
