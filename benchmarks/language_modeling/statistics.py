"""Differences, means and correlations over prompts, with bootstrap intervals.

Prompts are drawn again with replacement. Several points of one prompt are not independent, so
that they are drawn together.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pandas as pd
from scipy.stats import DegenerateDataWarning, bootstrap, rankdata

from sift_core.evaluation.statistics import CONFIDENCE, N_RESAMPLES, Estimate, mean

OUTLIER_SHARE = 0.0025  # of each end, left out of the paper's Pearson correlations


def difference(first: pd.Series, second: pd.Series) -> Estimate:
    """Return the mean of first - second over the prompts that both have."""
    return mean((first - second).dropna())


def best(columns: pd.DataFrame) -> str:
    """Return the name of the column with the lowest mean; the first of equal ones."""
    return columns.mean().idxmin()


def not_worse_than_best(columns: pd.DataFrame) -> dict[str, bool]:
    """Return which columns are not significantly worse than the one with the lowest mean.

    A column is worse where the 90 % interval of its paired difference to the best one lies
    above 0. With one prompt there is no interval: every other column is worse unless equal.
    """
    lowest = columns[best(columns)]
    gaps = {name: difference(columns[name], lowest) for name in columns}
    return {name: (gap.low if gap.n > 1 else gap.value) <= 0 for name, gap in gaps.items()}


def pearson(x: np.ndarray, y: np.ndarray, prompts: np.ndarray, leave_out: float = 0) -> Estimate:
    """Return Pearson's correlation, without this share of the points at each end of `x`.

    Those are chosen once, before resampling.
    """
    kept = without_ends(x, leave_out)
    x, y = x[kept], y[kept]
    return _over_prompts(lambda of: _coefficient(x[of], y[of]), prompts[kept])


def spearman(x: np.ndarray, y: np.ndarray, prompts: np.ndarray) -> Estimate:
    """Return Spearman's rank correlation."""
    return _over_prompts(lambda of: _coefficient(rankdata(x[of]), rankdata(y[of])), prompts)


def without_ends(x: np.ndarray, share: float = OUTLIER_SHARE) -> np.ndarray:
    """Return the positions without this share of the lowest and of the highest, in order."""
    cut = int(share * x.size)
    return np.sort(np.argsort(x, kind="stable")[cut : x.size - cut])


def _over_prompts(statistic: Callable[[np.ndarray], float], prompts: np.ndarray) -> Estimate:
    """Return a statistic of points with its interval; it takes positions of points, with repeats.

    A resample in which a correlation has no value (one side constant) does not count.
    """
    value = statistic(np.arange(prompts.size))
    points = [np.flatnonzero(prompts == one) for one in pd.unique(prompts)]
    if len(points) < 2 or np.isnan(value):
        return Estimate(value=value, standard_error=np.nan, low=np.nan, high=np.nan, n=len(points))
    with warnings.catch_warnings():
        # A resample in which one side is constant has no correlation.
        warnings.simplefilter("ignore", DegenerateDataWarning)
        resampled = bootstrap(
            (np.arange(len(points)),),
            lambda drawn: statistic(np.concatenate([points[one] for one in drawn])),
            n_resamples=N_RESAMPLES,
            method="percentile",
            vectorized=False,
            rng=np.random.default_rng(0),
        ).bootstrap_distribution
    kept = resampled[np.isfinite(resampled)]
    low, high = np.quantile(kept, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Estimate(
        value=value,
        standard_error=float(kept.std(ddof=1)),
        low=float(low),
        high=float(high),
        n=len(points),
    )


def _coefficient(x: np.ndarray, y: np.ndarray) -> float:
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    return float(np.corrcoef(x, y)[0, 1])
