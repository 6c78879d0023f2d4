"""The learnable tensors, attaching and detaching them, the adapter on disk."""

from longseal.scales.adapter import Adapter
from longseal.scales.attach import Attached, attached
from longseal.scales.scales import Scales

__all__ = ["Adapter", "Attached", "Scales", "attached"]
