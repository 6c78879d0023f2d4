"""What a job would cost, before it is done: tokens, steps, memory and time."""

from longseal.estimate.cost import Cost
from longseal.estimate.estimator import Estimator

__all__ = ["Cost", "Estimator"]
