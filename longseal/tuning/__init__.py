"""Learn the scales: many questions a context, trained short, judged long."""

from longseal.tuning.check import check_tuning
from longseal.tuning.tune import tune

__all__ = ["check_tuning", "tune"]
