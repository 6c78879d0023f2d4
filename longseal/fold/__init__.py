"""Scales into weights: as files, so that whatever ran the base runs the result."""

from longseal.fold.fold import Folded, check_target, fold

__all__ = ["Folded", "check_target", "fold"]
