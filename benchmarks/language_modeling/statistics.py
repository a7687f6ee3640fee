"""Paired differences over prompts, with bootstrap intervals."""

from __future__ import annotations

import pandas as pd

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
