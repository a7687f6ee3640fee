"""Means, paired differences and correlations with their uncertainty.

Intervals are percentile bootstraps (Efron and Tibshirani 1993, chapter 13): the prompts are
drawn again with replacement. Several points of one prompt are not independent, so that they are
drawn together. The same input and seed give the same interval.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sift_core.errors import InvalidInputError
from sift_core.evaluation.analysis.bootstrap import (
    Floats,
    Ints,
    check_settings,
    interval,
    multiplicities,
    numbered,
    resampled_means,
    vector,
)
from sift_core.evaluation.statistics import CONFIDENCE as CONFIDENCE
from sift_core.evaluation.statistics import N_RESAMPLES as N_RESAMPLES
from sift_core.evaluation.statistics import Estimate as Estimate

OUTLIER_SHARE = 0.0025  # of each end, left out of the paper's Pearson correlations


@dataclass(frozen=True, kw_only=True)
class Correlation:
    """A correlation coefficient with its interval.

    Args:
        value: In [-1, 1]; NaN where there are fewer than 2 points or one side is constant.
        low: Lower end of the confidence interval over prompts; NaN where there is none.
        high: Upper end.
        n: Number of points.
        n_prompts: Number of prompts that they come from.
    """

    value: float
    low: float
    high: float
    n: int
    n_prompts: int


def mean(
    values: npt.ArrayLike,
    *,
    confidence: float = CONFIDENCE,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """Return the mean of independent values, its standard error and a bootstrap interval.

    The standard error is std(ddof=1) / sqrt(n). Takes O(n · n_resamples) time.

    Args:
        values: Shape (n,), n >= 1, finite.
        confidence: Share of the resampled means inside the interval, in (0, 1).
        n_resamples: At least 1.
        seed: Of the resampling.

    Raises:
        InvalidInputError: If there is no value, one is not finite, or a setting is out of range.
    """
    array = vector("values", values)
    check_settings(confidence, n_resamples)
    n = array.size
    if n == 0:
        raise InvalidInputError("`values` must have at least 1 number, got none")
    if n == 1:
        return Estimate(value=float(array[0]), standard_error=np.nan, low=np.nan, high=np.nan, n=1)
    low, high = interval(resampled_means(array, n_resamples, seed), confidence)
    return Estimate(
        value=float(array.mean()),
        standard_error=float(array.std(ddof=1) / np.sqrt(n)),
        low=low,
        high=high,
        n=n,
    )


def paired_difference(
    first: Mapping[str, float],
    second: Mapping[str, float],
    *,
    confidence: float = CONFIDENCE,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """Return the mean of first - second over the prompts that both have.

    Args:
        first: A number by prompt id.
        second: Likewise.
        confidence: As in `mean`.
        n_resamples: As in `mean`.
        seed: As in `mean`.

    Raises:
        InvalidInputError: If they share no prompt.
    """
    common = [key for key in first if key in second]
    if not common:
        raise InvalidInputError(
            f"no prompt in common: {len(first)} prompts on one side, {len(second)} on the other"
        )
    return mean(
        [first[key] - second[key] for key in common],
        confidence=confidence,
        n_resamples=n_resamples,
        seed=seed,
    )


def grouped_mean(
    values: npt.ArrayLike,
    groups: Sequence[Hashable],
    *,
    confidence: float = CONFIDENCE,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """Return the mean of values of which those of one group (prompt) are not independent.

    Groups are resampled as a whole; the standard error is the standard deviation of the
    resampled means. NaN stands for it and the interval where there is one group.

    Args:
        values: Shape (m,), m >= 1, finite.
        groups: The group of every value, length m.
        confidence: As in `mean`.
        n_resamples: As in `mean`.
        seed: As in `mean`.

    Raises:
        InvalidInputError: As `mean`, or if the lengths differ.
    """
    array = vector("values", values)
    check_settings(confidence, n_resamples)
    group, n = numbered(groups, array.size)
    if array.size == 0:
        raise InvalidInputError("`values` must have at least 1 number, got none")
    if n == 1:
        return Estimate(
            value=float(array.mean()), standard_error=np.nan, low=np.nan, high=np.nan, n=1
        )
    sums, counts = np.bincount(group, weights=array), np.bincount(group)
    weights = multiplicities(n, n_resamples, seed)
    means = (weights @ sums) / (weights @ counts)
    low, high = interval(means, confidence)
    return Estimate(
        value=float(array.mean()),
        standard_error=float(means.std(ddof=1)) if n_resamples > 1 else np.nan,
        low=low,
        high=high,
        n=n,
    )


def spearman(
    first: npt.ArrayLike,
    second: npt.ArrayLike,
    *,
    prompts: Sequence[Hashable] | None = None,
    confidence: float = CONFIDENCE,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> Correlation:
    """Return Spearman's rank correlation; ties have the average of their ranks.

    Takes O(m log m + m · n_resamples) time for m points; every resample is ranked anew.

    Args:
        first: Shape (m,), finite.
        second: Shape (m,), finite.
        prompts: The prompt of every point; None where every point has its own.
        confidence: As in `mean`.
        n_resamples: As in `mean`; 0 leaves the interval out.
        seed: As in `mean`.

    Raises:
        InvalidInputError: If lengths differ, a number is not finite, or a setting is out of
            range.
    """
    x, y, group, n_prompts = _points(first, second, prompts, confidence, n_resamples)
    levels = [np.unique(side, return_inverse=True)[1] for side in (x, y)]

    def coefficient(weights: Floats) -> float:
        ranks = [_weighted_ranks(level, weights) for level in levels]
        return _weighted_pearson(ranks[0], ranks[1], weights)

    return _correlation(coefficient, group, n_prompts, confidence, n_resamples, seed)


def pearson(
    first: npt.ArrayLike,
    second: npt.ArrayLike,
    *,
    prompts: Sequence[Hashable] | None = None,
    leave_out: float = 0.0,
    confidence: float = CONFIDENCE,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> Correlation:
    """Return Pearson's linear correlation.

    Args:
        first: Shape (m,), finite.
        second: Shape (m,), finite.
        prompts: The prompt of every point; None where every point has its own.
        leave_out: This share of the points with the lowest, and of those with the highest
            `first` is left out, rounded down, in [0, 0.5); the paper's is `OUTLIER_SHARE`.
            They are chosen once, before resampling.
        confidence: As in `mean`.
        n_resamples: As in `mean`; 0 leaves the interval out.
        seed: As in `mean`.

    Raises:
        InvalidInputError: As `spearman`.
    """
    if not 0 <= leave_out < 0.5:
        raise InvalidInputError(f"`leave_out` must be in [0, 0.5), got {leave_out}")
    x, y, group, _ = _points(first, second, prompts, confidence, n_resamples)
    cut = int(leave_out * x.size)
    kept = np.sort(np.argsort(x, kind="stable")[cut : x.size - cut])
    x, y = x[kept], y[kept]
    group, n_prompts = numbered(group[kept].tolist(), kept.size)

    def coefficient(weights: Floats) -> float:
        return _weighted_pearson(x, y, weights)

    return _correlation(coefficient, group, n_prompts, confidence, n_resamples, seed)


def average_ranks(values: npt.ArrayLike) -> Floats:
    """Return the ranks 1 … n of the values, shape (n,); ties have the average of their ranks."""
    array = vector("values", values)
    _, level = np.unique(array, return_inverse=True)
    return _weighted_ranks(level, np.ones(array.size))


def _correlation(
    coefficient: Callable[[Floats], float],
    group: Ints,
    n_prompts: int,
    confidence: float,
    n_resamples: int,
    seed: int,
) -> Correlation:
    """Value and interval of a coefficient that takes one weight a point."""
    value = coefficient(np.ones(group.size))
    low = high = np.nan
    if n_prompts > 1 and n_resamples > 0 and np.isfinite(value):
        drawn = multiplicities(n_prompts, n_resamples, seed)
        low, high = interval(np.array([coefficient(of[group]) for of in drawn]), confidence)
    return Correlation(value=value, low=low, high=high, n=group.size, n_prompts=n_prompts)


def _weighted_ranks(level: Ints, weights: Floats) -> Floats:
    """Ranks where value i stands `weights[i]` times; `level` numbers the distinct values."""
    counts = np.bincount(level, weights=weights)
    ranks: Floats = (np.cumsum(counts) - counts + (counts + 1) / 2)[level]
    return ranks


def _weighted_pearson(x: Floats, y: Floats, weights: Floats) -> float:
    drawn = weights > 0
    if not drawn.any() or np.ptp(x[drawn]) == 0 or np.ptp(y[drawn]) == 0:
        return float("nan")
    total = float(weights.sum())
    x, y = x - weights @ x / total, y - weights @ y / total
    scale = float(np.sqrt(weights @ x**2) * np.sqrt(weights @ y**2))
    if not scale > 0:  # underflow
        return float("nan")
    return float(np.clip(weights @ (x * y) / scale, -1.0, 1.0))


def _points(
    first: npt.ArrayLike,
    second: npt.ArrayLike,
    prompts: Sequence[Hashable] | None,
    confidence: float,
    n_resamples: int,
) -> tuple[Floats, Floats, Ints, int]:
    x, y = vector("first", first), vector("second", second)
    if x.size != y.size:
        raise InvalidInputError(
            f"`first` and `second` must be of one length, got {x.size} and {y.size}"
        )
    if n_resamples:
        check_settings(confidence, n_resamples)
    if prompts is None:
        return x, y, np.arange(x.size), x.size
    group, n_prompts = numbered(prompts, x.size)
    return x, y, group, n_prompts
