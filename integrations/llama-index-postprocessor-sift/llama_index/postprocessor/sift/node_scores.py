"""What the scores say that nodes arrive with: more than the cosines do, or nothing.

A score is whatever the last retriever or reranker put there: a cosine, an inner product, a
squared distance (Faiss, where smaller is nearer), a fused rank, a cross-encoder's logit.
Only the order of scores is used, so their scale does not matter; their direction does.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from llama_index.core.schema import NodeWithScore

from sift_core import InvalidInputError

# Stores compute cosines in float32: closer than this, two are equal for all that they say.
ROUNDING = 1e-5


def scores_of(
    nodes: Sequence[NodeWithScore], *, use_scores: bool | None = None
) -> npt.NDArray[np.float64] | None:
    """Return the nodes' scores so that higher is better, shape (n,), or None for nothing.

    Scores that never fall and rise somewhere, in order of arrival, are distances and come
    back negated: stores return the nearest node first, and rerankers the best one.

    Args:
        nodes: n nodes in order of arrival.
        use_scores: True if they must have scores, False for never; None for where all have
            one that is finite, and not all the same.

    Raises:
        InvalidInputError: If `use_scores` is True and a node has no finite score.
    """
    if use_scores is False or not nodes:
        return None
    scores = np.array([np.nan if node.score is None else node.score for node in nodes], dtype=float)
    if not np.isfinite(scores).all():
        if use_scores:
            first = nodes[int(np.flatnonzero(~np.isfinite(scores))[0])]
            raise InvalidInputError(
                f"node {first.node.node_id!r} has no finite score to take its relevance from, got "
                f"{first.score}; leave `use_scores` out, or put a postprocessor before that "
                f"gives scores"
            )
        return None
    steps = np.diff(scores)
    rises, falls = bool((steps > 0).any()), bool((steps < 0).any())
    if use_scores is None and not rises and not falls:
        return None
    return -scores if rises and not falls else scores


def relevance_of(
    nodes: Sequence[NodeWithScore],
    similarities: npt.NDArray[np.floating],
    *,
    use_scores: bool | None = None,
) -> npt.NDArray[np.float64] | None:
    """Return what the nodes' scores say beyond their cosines, or None for nothing.

    Unless asked for, scores that order the nodes as the cosines do say nothing: cosines say
    the same, more finely.

    Args:
        nodes: n nodes in order of arrival.
        similarities: Their cosines with the query, shape (n,).
        use_scores: As in `scores_of`; True also for scores that say nothing new.

    Returns:
        Shape (n,), finite, higher is more relevant.

    Raises:
        InvalidInputError: If `use_scores` is True and a node has no finite score.
    """
    scores = scores_of(nodes, use_scores=use_scores)
    if scores is None or use_scores:
        return scores
    if _are_in_order(scores, similarities):
        return None
    # Similarities or distances that were put into another order after the search.
    came_best_first = bool((np.diff(scores) <= 0).all())
    raw = np.array([node.score for node in nodes], dtype=float)
    if _are_in_order(raw, similarities):
        return None
    if not came_best_first and _are_in_order(-raw, similarities):
        return None
    return scores


def _are_in_order(scores: npt.NDArray[np.float64], similarities: npt.NDArray[np.floating]) -> bool:
    """Return whether a higher score never goes with a lower cosine, but for rounding."""
    by_score = similarities[np.lexsort((-similarities, -scores))]
    highest_after = np.maximum.accumulate(by_score[::-1])[::-1]
    return bool((highest_after - by_score < ROUNDING).all())
