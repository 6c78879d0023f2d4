"""The loss on samples that training does not see, and whether it still falls."""

from __future__ import annotations

from math import inf, isfinite

from longseal.files import Log
from longseal.models.load import LanguageModel
from longseal.tasks.loss import loss
from longseal.tuning.samples import Mixture

#: A change of the loss by a smaller share is none.
CHANGE = 0.02
#: Looks in a row without a better loss after which it has stopped falling.
_PATIENCE = 2


class Watch:
    """Looks at the held-out loss of a training length from time to time.

    Attributes:
        samples: one of each task.
    """

    def __init__(
        self, model: LanguageModel, mixture: Mixture, length: int, log: Log | None
    ) -> None:
        self.samples = [part.watched(length) for part in mixture.parts]
        self._model, self._mixture, self._log = model, mixture, log
        self._length = length
        self._losses: dict[int, float] = {}

    def loss(self) -> float:
        """The loss as it is now (nats a token), over the tasks; infinite if it is no number."""
        value = self._mixture.mean([loss(self._model, sample) for sample in self.samples])
        return value if isfinite(value) else inf

    def look(self, step: int, rate: float) -> float:
        """The loss after a step; what the log holds of the same learning rates is not run again."""
        key = {"event": "held-out loss", "step": step, "strength": 1.0}
        key |= {"tokens": self._length, "rate": rate}
        known = [] if self._log is None else self._log.read(**key)
        if known:
            value = inf if known[-1]["loss"] is None else known[-1]["loss"]
        else:
            value = self.loss()
            if self._log is not None:  # JSON has no infinity
                self._log.append({**key, "loss": value if isfinite(value) else None})
        self._losses[step] = value
        return value

    @property
    def latest(self) -> float:
        """The loss at the last look."""
        return list(self._losses.values())[-1]

    @property
    def stopped(self) -> bool:
        """Whether the last looks were no better than those before them."""
        losses = list(self._losses.values())
        before, last = losses[:-_PATIENCE], losses[-_PATIENCE:]
        return bool(before) and min(last) > (1 - CHANGE) * min(before)
