"""Ridge regression with the penalty of least leave-one-out error; NumPy alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sift_core.errors import InvalidInputError
from sift_core.types import FloatArray

PENALTIES = tuple(10.0**power for power in range(-3, 5))  # times the number of examples
MIN_SCALE = 1e-9  # a feature that varies less is a constant up to rounding


@dataclass(frozen=True, kw_only=True)
class Ridge:
    """A linear prediction that stays within what was seen.

    Args:
        weights: Of the features as they come, not scaled.
        intercept: The prediction at zero.
        low: The least value seen; no prediction is lower.
        high: The greatest value seen.
        error: Root of the mean squared leave-one-out error, in units of the values.
        penalty: What was chosen of `PENALTIES`.

    Raises:
        InvalidInputError: If a number is not finite, or `low` > `high`.
    """

    weights: tuple[float, ...]
    intercept: float
    low: float
    high: float
    error: float
    penalty: float

    def __post_init__(self) -> None:
        numbers = (*self.weights, self.intercept, self.low, self.high, self.error, self.penalty)
        if not np.isfinite(numbers).all() or self.low > self.high or self.error < 0:
            raise InvalidInputError(f"a regression must hold finite numbers, got {numbers}")

    @classmethod
    def fit(cls, features: FloatArray, values: FloatArray) -> Ridge:
        """Return the regression of `values` (n,) on `features` (n, d), n >= 2.

        The features are scaled to unit variance and the mean is not penalised. Leaving one
        out takes no second fit: its error is the residual over one minus its leverage.

        References:
            Allen (1974), Technometrics 16, on the PRESS statistic.
        """
        n = len(values)
        centre, mean = features.mean(axis=0), values.mean()
        scales = features.std(axis=0)
        scales = np.where(scales > MIN_SCALE, scales, np.inf)  # a constant gets no weight
        left, singular, right = np.linalg.svd((features - centre) / scales, full_matrices=False)
        projected = left.T @ (values - mean)
        errors = []
        for penalty in PENALTIES:
            shrink = singular**2 / (singular**2 + n * penalty)
            residuals = values - mean - left @ (shrink * projected)
            leverages = (left**2) @ shrink + 1 / n
            errors.append(float(np.sqrt(np.mean((residuals / (1 - leverages)) ** 2))))
        best = len(errors) - 1 - int(np.argmin(errors[::-1]))  # of equals the strongest
        shrink = singular / (singular**2 + n * PENALTIES[best])
        weights = (right.T @ (shrink * projected)) / scales
        return cls(
            weights=tuple(weights.tolist()),
            intercept=float(mean - centre @ weights),
            low=float(values.min()),
            high=float(values.max()),
            error=errors[best],
            penalty=PENALTIES[best],
        )

    def predict(self, features: FloatArray) -> float:
        """Return the prediction for features of shape (d,)."""
        value = self.intercept + float(np.dot(self.weights, features))
        return min(self.high, max(self.low, value))

    def as_record(self) -> dict[str, Any]:
        """Return what JSON can hold and `from_record` reads."""
        return {**vars(self), "weights": list(self.weights)}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Ridge:
        """Return the regression of a record.

        Raises:
            InvalidInputError: If a number is missing or no finite one.
        """
        try:
            numbers = {
                name: float(record[name]) for name in cls.__annotations__ if name != "weights"
            }
            return cls(weights=tuple(float(w) for w in record["weights"]), **numbers)
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInputError(f"no regression: {error}") from error
