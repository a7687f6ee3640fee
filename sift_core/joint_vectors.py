"""What a choice reads of a pool: vectors of embeddings and words, relevance, and where it leads."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from sift_core.selection.context import distinct_of_region
from sift_core.selection.cosines import cosine_similarities
from sift_core.selection.kernels import in_the_order_of
from sift_core.selection.near_duplicates import FEWEST_TO_READ, NEVER_NEAR
from sift_core.selection.spread import QuestionPart, Spread, question_parts, spread
from sift_core.selection.words import PoolWords, joined, pool_words
from sift_core.types import CandidatePool, FloatArray, Query

__all__ = ["JointVectors", "joint_vectors"]

WORDS_IN_RELEVANCE = 0.6  # of the share: decision 0034
# Between chunks that words tell apart, too, no gap is due to a common direction of embeddings. So
# near-duplicates are nearer to one another: mails that quote a mail are not versions of it.
RADIUS_WITH_WORDS = 0.2
WORDS_IN_SHORT_POOLS = 0.05  # only so much that equal embeddings are ranked by words


@dataclass(frozen=True, kw_only=True, eq=False)
class JointVectors:
    """The question, the candidates and the relevance that a selector goes by."""

    query: FloatArray
    """Shape (d,), or (m, d) of several questions."""
    candidates: FloatArray
    """Shape (n, d)."""
    relevance: FloatArray | None
    """Shape (n,) or (m, n); None if the products of the vectors are to be it."""
    words: PoolWords | None = None
    """The words of the pool; None if they do not count, or there are none."""
    spreads: tuple[Spread, ...] = field(default=())
    """Where the relevance to each of m questions leads; empty if it does not spread."""
    parts: tuple[QuestionPart, ...] = ()
    """Names, numbers and headings in the questions; empty without words."""
    largest_radius: float = NEVER_NEAR
    """What `ContextSelector.select` takes by this name."""

    @property
    def target_weights(self) -> FloatArray | None:
        """What each candidate counts as a target, shape (n,) or (m, n); None without spreads."""
        if not self.spreads:
            return None
        weights = np.stack([one.weights for one in self.spreads])
        return weights if self.query.ndim == 2 else weights[0]

    @property
    def spread_relevance(self) -> FloatArray | None:
        """The relevance in the order of the spread, for selectors that take no target weights.

        The candidate with the i-th largest weight has the i-th largest relevance.
        """
        weights = self.target_weights
        if weights is None or self.relevance is None:
            return self.relevance
        rows = zip(np.atleast_2d(weights), np.atleast_2d(self.relevance), strict=True)
        found = np.stack([in_the_order_of(each, own) for each, own in rows])
        return found if self.query.ndim == 2 else found[0]


def joint_vectors(
    pool: CandidatePool, query: Query, share: float, *, has_versions: bool = False
) -> JointVectors:
    """Return what a selector goes by: embeddings alone, or joined by words.

    Costs 4 to 6 ms for 200 candidates whose words are cached, and 3 to 5 ms more for new ones.

    Args:
        pool: The n candidates.
        query: The question with its embedding, and perhaps others in `also`.
        share: Weight of the words in the products of vectors, in [0, 1]. With 0, or in a pool
            without words, embeddings alone decide. A pool's own relevance keeps its order and does
            not spread, since the ranker that gave it has read the texts.
        has_versions: Let words have a share of 0.05 among candidates, so that versions that differ
            in a number are near-duplicates. In the relevance words have their whole share. Pools
            of fewer than 20 candidates, which do not show what words are rare, are compared so,
            too, and relevance does not spread there. Default: False.
    """
    if share == 0 or not len(pool):
        return JointVectors(
            query=query.vectors, candidates=pool.embeddings, relevance=pool.relevance
        )
    questions = [query, *query.also]
    words = pool_words(
        list(pool.texts),
        [one.text for one in questions],
        headings=[pool.heading(row) for row in range(len(pool))],
    )
    if not words.has_words.any():
        return joint_vectors(pool, query, 0.0)
    compares_words = not has_versions and len(pool) >= FEWEST_TO_READ
    in_kernel = share if compares_words else min(share, WORDS_IN_SHORT_POOLS)
    vectors = joined(pool.embeddings, query.vectors, words, in_kernel)
    of_words = WORDS_IN_RELEVANCE * share * words.question_has_words[:, np.newaxis]
    cosines = np.stack([cosine_similarities(one.vector, pool.embeddings) for one in questions])
    relevance = (1 - of_words) * cosines + of_words * words.question
    if pool.relevance is not None:
        relevance = np.stack([in_the_order_of(pool.relevance, row) for row in relevance])
    radius = RADIUS_WITH_WORDS if compares_words else NEVER_NEAR
    spreads: list[Spread] = []
    parts = [question_parts(words, one.text, i) for i, one in enumerate(questions)]
    if pool.relevance is None and len(pool) >= FEWEST_TO_READ:
        for row, own in zip(relevance, parts, strict=True):
            kept = distinct_of_region(vectors.gram, row, largest_radius=radius)
            spreads.append(spread(words, row, kept, own))
    is_one = not query.also
    return JointVectors(
        query=vectors.questions[0] if is_one else vectors.questions,
        candidates=vectors.candidates,
        relevance=relevance[0] if is_one else relevance,
        words=words,
        spreads=tuple(spreads),
        parts=tuple(part for own in parts for part in own),
        largest_radius=radius,
    )
