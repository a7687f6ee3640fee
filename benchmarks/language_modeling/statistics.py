"""Paired differences and shares over prompts, with bootstrap intervals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import bootstrap

from sift_core.evaluation.statistics import Estimate, mean


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


def share(own: Any, other: Any, axis: int = -1) -> Any:
    """Return the sum of one column over that of another, for `paired_interval`."""
    return own.sum(axis=axis) / other.sum(axis=axis)


def paired_interval(statistic: Any, *columns: pd.Series) -> list[float]:
    """Return a statistic of paired columns with the ends of its 90 % bootstrap interval."""
    arrays = [column.to_numpy(dtype=float) for column in columns]
    value = float(statistic(*arrays))
    if len(arrays[0]) < 2 or np.ptp(arrays[0] - arrays[1]) == 0:
        return [value, value, value]
    kind = {"paired": True, "confidence_level": 0.9, "method": "percentile"}
    found = bootstrap(arrays, statistic, **kind, rng=np.random.default_rng(0))
    low, high = found.confidence_interval
    return [value, float(low), float(high)]
