"""Learn the scales: many questions a context, trained short, judged long."""

from longseal.tuning.tune import tune

__all__ = ["tune"]
