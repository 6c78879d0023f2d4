"""Scales into weights: as files, so that whatever ran the base runs the result."""

from longseal.fold.copying import check_target
from longseal.fold.fold import Folded, check_foldable, fold

__all__ = ["Folded", "check_foldable", "check_target", "fold"]
