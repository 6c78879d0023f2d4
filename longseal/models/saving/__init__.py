"""Ways to run a forward and backward pass in less memory."""

from longseal.models.saving.ways import Way, saving, ways

__all__ = ["Way", "saving", "ways"]
