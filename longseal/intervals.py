"""How sure a mean is, or a correlation."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """A 95% interval of the mean of values from 0 to 1, each taken as independent.

    Wilson's for right and wrong. Parts of a point are resampled (bootstrap, BCa), unless all are
    equal: then Wilson's again, from the whole counts around the sum, as nothing between 0 and 1
    spreads more than right and wrong do. So it does not shrink to a point.
    """
    from scipy.stats import binomtest, bootstrap  # a second to import: only where it is used

    if len(set(values)) > 1 and not set(values) <= {0, 1}:
        import numpy as np

        found = bootstrap((values,), np.mean, batch=500, rng=0).confidence_interval
        return float(found.low), float(found.high)
    right = round(sum(values), 9)
    low, high = (
        binomtest(count, len(values)).proportion_ci(method="wilson")
        for count in (floor(right), ceil(right))
    )
    return float(low.low), float(high.high)


def change_interval(changes: Sequence[float]) -> tuple[float, float] | None:
    """A 95% interval of a mean change (t), each taken as independent; None of fewer than two.

    Of changes that are all equal it is that one value.
    """
    from scipy.stats import ttest_1samp

    if len(changes) < 2:
        return None
    if len(set(changes)) == 1:
        return changes[0], changes[0]
    found = ttest_1samp(changes, 0.0).confidence_interval()
    return float(found.low), float(found.high)


def rank_correlation(
    ones: Sequence[float], others: Sequence[float]
) -> tuple[float, tuple[float, float]] | None:
    """Spearman's correlation of pairs with a 95% interval (Fisher), each taken as independent.

    None of fewer than four pairs, or where all of one side are equal.
    """
    from scipy.stats import pearsonr, rankdata

    if len(ones) < 4 or len(set(ones)) < 2 or len(set(others)) < 2:
        return None
    found = pearsonr(rankdata(ones), rankdata(others))
    interval = found.confidence_interval()
    return float(found.statistic), (float(interval.low), float(interval.high))
