"""The paper's own settings, for those who want them."""

from __future__ import annotations

from longseal.config import TuneConfig
from longseal.tuning.optimisation import PAPER_RATE


def followed(config: TuneConfig) -> TuneConfig:
    """The settings as they are followed: `recipe="paper"` fills in what is not set.

    50 samples of the full length, one question each, one epoch, a constant learning rate (paper,
    experimental settings).
    """
    if config.recipe != "paper":
        return config
    samples = config.samples or 50
    return config.model_copy(
        update={
            "lr": config.lr or PAPER_RATE[config.kind],
            "samples": samples,
            "steps": config.steps or samples,  # all of them, whatever the loss does
            "questions": 1,
            "train_length": config.train_length or max(config.length),
        }
    )
