"""Which heads and channels help retrieval, which harm it, and why."""

from longseal.probing.heads import Head
from longseal.probing.probe import probe
from longseal.probing.result import Base, Influence, Probe, Quadrants, Rescaled, Trust

__all__ = ["Base", "Head", "Influence", "Probe", "Quadrants", "Rescaled", "Trust", "probe"]
