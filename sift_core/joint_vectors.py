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

# Of the share: decisions 0034 and 0036. Among candidates words count so little that versions stay
# near-duplicates, and so much that equal embeddings are told from one another.
WORDS_IN_RELEVANCE = 0.6
WORDS_IN_KERNEL = 0.07
# Where words say what the question asks for, near-duplicates are nearer to one another than by
# embeddings alone: mails that quote a mail are not versions of it.
RADIUS_WITH_WORDS = 0.2


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
    def missing_parts(self) -> list[QuestionPart]:
        """Names and numbers in the questions that no candidate has whole, each once."""
        return list({part.words: part for part in self.parts if part.is_missing}.values())

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


def joint_vectors(pool: CandidatePool, query: Query, share: float) -> JointVectors:
    """Return what a selector goes by: embeddings alone, or joined by words.

    Costs 7 ms for 200 candidates whose words are cached, and 4 to 7 ms more for new ones.

    Args:
        pool: The n candidates.
        query: The question with its embedding, and perhaps others in `also`.
        share: How much words count, in [0, 1]: 0.6 times as much is their share in the relevance,
            0.07 times as much that in the products of vectors. With 0, or in a pool without words,
            embeddings alone decide. A pool's own relevance keeps its order and does not spread,
            since the ranker that gave it has read the texts. Nor does relevance spread in a pool
            of fewer than 20 candidates, which does not show what words are rare.
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
    vectors = joined(pool.embeddings, query.vectors, words, WORDS_IN_KERNEL * share)
    of_words = WORDS_IN_RELEVANCE * share * words.question_has_words[:, np.newaxis]
    cosines = np.stack([cosine_similarities(one.vector, pool.embeddings) for one in questions])
    relevance = (1 - of_words) * cosines + of_words * words.question
    if pool.relevance is not None:
        relevance = np.stack([in_the_order_of(pool.relevance, row) for row in relevance])
    spreads: list[Spread] = []
    parts = [question_parts(words, one.text, i) for i, one in enumerate(questions)]
    if pool.relevance is None and len(pool) >= FEWEST_TO_READ:
        for row, own in zip(relevance, parts, strict=True):
            kept = distinct_of_region(vectors.gram, row, largest_radius=RADIUS_WITH_WORDS)
            spreads.append(spread(words, row, kept, own))
    is_one = not query.also
    return JointVectors(
        query=vectors.questions[0] if is_one else vectors.questions,
        candidates=vectors.candidates,
        relevance=relevance[0] if is_one else relevance,
        words=words,
        spreads=tuple(spreads),
        parts=tuple(part for own in parts for part in own),
        largest_radius=RADIUS_WITH_WORDS,
    )
