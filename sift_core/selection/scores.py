"""What scores of a store or an earlier ranker say beyond the cosines."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sift_core.errors import InvalidInputError
from sift_core.types import FloatArray

__all__ = ["relevance_of_scores"]

# Stores compute cosines in float32: closer than this, two are equal for all that they say.
ROUNDING = 1e-5


def relevance_of_scores(
    scores: Sequence[float | None],
    similarities: FloatArray,
    *,
    document_ids: Sequence[str],
    use_scores: bool | None = None,
) -> FloatArray | None:
    """Return what scores say beyond the cosines, or None for nothing.

    A score is whatever the last retriever or reranker put there: a cosine, an inner product, a
    squared distance (Faiss, where smaller is nearer), a fused rank, a cross-encoder's logit.
    Scores that never fall and rise somewhere, in order of arrival, are distances and come
    back negated: stores return the nearest document first, and rerankers the best one.

    Args:
        scores: n numbers or None, of documents in order of arrival.
        similarities: Their cosines with the query, shape (n,).
        document_ids: n names, for the error.
        use_scores: True to take the scores whatever they say, False for never. None for where
            all documents have a finite one, which differ and do not order the documents as
            the cosines do: cosines say the same, more finely.

    Returns:
        Shape (n,), finite, higher is more relevant.

    Raises:
        InvalidInputError: If `use_scores` is True and a document has no finite score.

    Example:
        >>> relevance_of_scores([4.1, 2.5], np.array([0.6, 0.8]), document_ids=["a", "b"]).tolist()
        [4.1, 2.5]
    """
    if use_scores is False:
        return None
    values = np.array(scores, dtype=float)  # NaN for None
    is_finite = np.isfinite(values)
    if not is_finite.all():
        if not use_scores:
            return None
        first = int(is_finite.argmin())
        raise InvalidInputError(
            f"{document_ids[first]!r} has no finite score to take its relevance from, got "
            f"{scores[first]}; leave `use_scores` out, or put a ranker before that gives scores"
        )
    steps = values[1:] - values[:-1]
    rises, falls = bool((steps > 0).any()), bool((steps < 0).any())
    if use_scores is None:
        if not (rises or falls) or _are_in_order(values, similarities):
            return None
        # Distances, perhaps put into another order after the search.
        if rises and _are_in_order(-values, similarities):
            return None
    return -values if rises and not falls else values


def _are_in_order(scores: FloatArray, similarities: FloatArray) -> bool:
    """Return whether a higher score never goes with a lower cosine, but for rounding."""
    by_score = similarities[np.lexsort((-similarities, -scores))]
    highest_after = np.maximum.accumulate(by_score[::-1])[::-1]
    return bool((highest_after - by_score < ROUNDING).all())
