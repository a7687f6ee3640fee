"""What another ranker thinks of the candidates, on the scale of the cosines."""

from __future__ import annotations

import numpy as np

from sift_core.checks import as_finite_array
from sift_core.errors import InvalidInputError
from sift_core.types import FloatArray


def checked_relevance(relevance: FloatArray, n: int) -> FloatArray:
    """Return what another ranker thinks of n candidates, shape (n,), finite.

    Raises:
        InvalidInputError: If there are not n numbers, or one is not finite.
    """
    relevance = as_finite_array("relevance", relevance, n_dimensions=1)
    if len(relevance) != n:
        raise InvalidInputError(
            f"`relevance` must have one number a candidate: {n} candidate(s), "
            f"{len(relevance)} number(s)"
        )
    return relevance


def in_the_order_of(relevance: FloatArray, cosines: FloatArray) -> FloatArray:
    """Return the cosines dealt out anew, the i-th largest to the i-th most relevant, (n,).

    Only the order of `relevance` counts, so that its scale does not matter. Candidates that are
    equally relevant get the mean of theirs.

    Raises:
        InvalidInputError: As `checked_relevance`.
    """
    relevance = checked_relevance(relevance, len(cosines))
    _, group, sizes = np.unique(relevance, return_inverse=True, return_counts=True)
    dealt = np.empty(len(cosines))
    dealt[np.argsort(relevance, kind="stable")] = np.sort(cosines)
    means: FloatArray = np.bincount(group, weights=dealt, minlength=len(sizes)) / sizes
    return means[group]
