"""Scales into weights: as files, so that whatever ran the base runs the result."""

from longseal.fold.changes import Projection
from longseal.fold.copying import check_target
from longseal.fold.fold import Folded, check_foldable, fold

__all__ = ["Folded", "Projection", "check_foldable", "check_target", "fold"]
