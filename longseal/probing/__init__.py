"""Which heads and channels help retrieval, which harm it, and why."""

from longseal.models.sites import Head
from longseal.probing.case import Case
from longseal.probing.looks import Look
from longseal.probing.probe import check, probe
from longseal.probing.result import (
    Answered,
    Influence,
    Looks,
    Probe,
    Quadrants,
    Relation,
    Rescaled,
    Trust,
    Tuned,
)

__all__ = [
    "Answered",
    "Case",
    "Head",
    "Influence",
    "Look",
    "Looks",
    "Probe",
    "Quadrants",
    "Relation",
    "Rescaled",
    "Trust",
    "Tuned",
    "check",
    "probe",
]
