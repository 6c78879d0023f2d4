"""What a stage of a job costs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """One stage of a job.

    Attributes:
        tokens: tokens run through the model (a context counts once for all its questions).
        steps: optimiser steps.
        seconds: estimated from passes that were timed.
        memory: bytes at its peak.
    """

    stage: str
    tokens: int
    steps: int
    seconds: float
    memory: int

    @classmethod
    def of(cls, stage: str, parts: Iterable[Cost]) -> Cost:
        """One stage made of several, one after another."""
        parts = list(parts)
        return cls(
            stage,
            sum(part.tokens for part in parts),
            sum(part.steps for part in parts),
            sum(part.seconds for part in parts),
            max((part.memory for part in parts), default=0),
        )
