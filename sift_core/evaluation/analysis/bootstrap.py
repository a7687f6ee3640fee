"""Drawing prompts again with replacement, for the intervals of means and correlations."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from sift_core.errors import InvalidInputError

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]

_BLOCK = 2**22  # numbers drawn at once, which bounds memory at 32 MiB


def numbered(groups: Sequence[Hashable], n: int) -> tuple[Ints, int]:
    """Return a number for every value's group, in order of appearance, and how many there are."""
    if len(groups) != n:
        raise InvalidInputError(f"a group for each of {n} values is needed, got {len(groups)}")
    numbers = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    return np.array([numbers[group] for group in groups], dtype=np.int64), len(numbers)


def resampled_means(values: Floats, n_resamples: int, seed: int) -> Floats:
    """Return the means of n_resamples drawings of as many values, shape (n_resamples,)."""
    generator = np.random.default_rng(seed)
    block = max(1, _BLOCK // values.size)
    means = [
        values[generator.integers(values.size, size=(min(block, left), values.size))].mean(axis=1)
        for left in range(n_resamples, 0, -block)
    ]
    return np.concatenate(means)


def multiplicities(n: int, n_resamples: int, seed: int) -> Floats:
    """Return how often each of n groups was drawn, shape (n_resamples, n); every line sums to n."""
    generator = np.random.default_rng(seed)
    return generator.multinomial(n, np.full(n, 1 / n), size=n_resamples).astype(np.float64)


def interval(resampled: Floats, confidence: float) -> tuple[float, float]:
    """Return the percentiles; a resample without a value (one side constant) does not count."""
    resampled = resampled[np.isfinite(resampled)]
    if not resampled.size:
        return float("nan"), float("nan")
    low, high = np.quantile(resampled, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def vector(name: str, values: npt.ArrayLike) -> Floats:
    """Return the values as one vector; anything not finite is refused."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not np.all(np.isfinite(array)):
        raise InvalidInputError(
            f"`{name}` must be a vector of finite numbers, got shape {array.shape} with "
            f"{int(array.size - np.isfinite(array).sum())} numbers that are not finite"
        )
    return array


def check_settings(confidence: float, n_resamples: int) -> None:
    """Refuse a confidence outside (0, 1) and fewer than 1 resample."""
    if not 0 < confidence < 1:
        raise InvalidInputError(f"`confidence` must be in (0, 1), got {confidence}")
    if n_resamples < 1:
        raise InvalidInputError(f"`n_resamples` must be at least 1, got {n_resamples}")
