"""Means with a standard error and a bootstrap interval over prompts or questions.

Intervals are percentile bootstraps (Efron and Tibshirani 1993, chapter 13). The same values and
seed give the same interval.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sift_core.errors import InvalidInputError

CONFIDENCE = 0.9  # the paper's
N_RESAMPLES = 1_000
_BLOCK = 2**22  # numbers drawn at once, which bounds memory at 32 MiB


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A mean with its uncertainty.

    Args:
        value: The mean.
        standard_error: std(ddof=1) / sqrt(n); NaN if n is 1.
        low: Lower end of the interval of `CONFIDENCE`; NaN if n is 1.
        high: Upper end.
        n: Number of independent values.
    """

    value: float
    standard_error: float
    low: float
    high: float
    n: int

    def text(self, digits: int = 1, sign: str = "") -> str:
        """Return "48.1 [41.0, 55.2]", with "–" for an interval or a value that is NaN.

        Args:
            digits: After the point, >= 0.
            sign: "+" to write it before what is not negative. Default: no sign.
        """
        if math.isnan(self.value):
            return "–"
        # + 0.0 gives what rounds to -0 the sign +
        value, low, high = (
            f"{round(one, digits) + 0.0:{sign}.{digits}f}"
            for one in (self.value, self.low, self.high)
        )
        return f"{value} [–]" if math.isnan(self.low) else f"{value} [{low}, {high}]"


def mean(values: npt.ArrayLike, *, n_resamples: int = N_RESAMPLES, seed: int = 0) -> Estimate:
    """Return the mean of independent values with its standard error and interval.

    Takes O(n · n_resamples) time.

    Args:
        values: Shape (n,), n >= 1, finite.
        n_resamples: At least 1.
        seed: Of the resampling.

    Raises:
        InvalidInputError: If there is no value, or one is not finite.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or array.size == 0 or not np.isfinite(array).all():
        raise InvalidInputError(
            f"`values` must be a vector of at least 1 finite number, got shape {array.shape} with "
            f"{int(array.size - np.isfinite(array).sum())} numbers that are not finite"
        )
    n = array.size
    if n == 1:
        return Estimate(value=float(array[0]), standard_error=np.nan, low=np.nan, high=np.nan, n=1)
    generator = np.random.default_rng(seed)
    block = max(1, _BLOCK // n)
    resampled = [
        array[generator.integers(n, size=(min(block, left), n))].mean(axis=1)
        for left in range(n_resamples, 0, -block)
    ]
    ends = [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]
    low, high = np.quantile(np.concatenate(resampled), ends).tolist()
    return Estimate(
        value=float(array.mean()),
        standard_error=float(array.std(ddof=1) / np.sqrt(n)),
        low=low,
        high=high,
        n=n,
    )
