"""No harm: what the model can do beside the wanted tasks, measured before tuning and after."""

from longseal.tuning.guard.guard import Guard
from longseal.tuning.guard.harm import Harm, harm
from longseal.tuning.guard.measured import FormatScore, Measured, TextScore
from longseal.tuning.guard.text import places

__all__ = ["FormatScore", "Guard", "Harm", "Measured", "TextScore", "harm", "places"]
