"""What a choice reads of a pool: its words, how relevant they make candidates, where that leads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sift_core.selection.context import distinct_of_region
from sift_core.selection.cosines import cosine_similarities
from sift_core.selection.kernels import in_the_order_of, unit_rows
from sift_core.selection.near_duplicates import FEWEST_TO_READ
from sift_core.selection.spread import QuestionPart, Spread, question_parts, spread
from sift_core.selection.words import PoolWords, pool_words
from sift_core.types import CandidatePool, FloatArray, Query

__all__ = ["PoolReading", "read_pool"]

WORDS_IN_RELEVANCE = 0.6  # of `share`: decision 0036


@dataclass(frozen=True, kw_only=True, eq=False)
class PoolReading:
    """The words of a pool and what follows from them for m questions."""

    words: PoolWords
    cosines: FloatArray
    """Of the embeddings of the questions and the candidates, shape (m, n)."""
    relevance: FloatArray
    """Of the candidates to each question, shape (m, n)."""
    spreads: tuple[Spread, ...]
    """Where the relevance to each question leads; empty if it does not spread."""
    parts: tuple[QuestionPart, ...]
    """Names, numbers and headings in the questions."""

    @property
    def missing_parts(self) -> list[QuestionPart]:
        """Names and numbers in the questions that no candidate has whole, each once."""
        return list({part.words: part for part in self.parts if part.is_missing}.values())

    @property
    def target_weights(self) -> FloatArray | None:
        """What each candidate counts as a target, shape (m, n); None without spreads."""
        return np.stack([one.weights for one in self.spreads]) if self.spreads else None

    @property
    def spread_relevance(self) -> FloatArray:
        """The relevance in the order of the spread, for selectors that take no target weights.

        The candidate with the i-th largest weight has the i-th largest relevance. Shape (m, n).
        """
        if not self.spreads:
            return self.relevance
        rows = zip(self.spreads, self.relevance, strict=True)
        return np.stack([in_the_order_of(one.weights, own) for one, own in rows])


def read_pool(pool: CandidatePool, query: Query, share: float) -> PoolReading | None:
    """Return what the words of a pool say; None if none are read.

    Costs 6 ms for 200 candidates whose words are cached, and 4 to 7 ms more for new ones.

    Args:
        pool: The n candidates.
        query: The question with its embedding, and perhaps others in `also`.
        share: How much words count, in [0, 1]: their share in the relevance is 0.6 times as much.
            With 0 none are read, nor in a pool without words. A pool's own relevance keeps its
            order and does not spread, since the ranker that gave it has read the texts. Nor does
            relevance spread in a pool of fewer than 20 candidates, which does not show what words
            are rare.
    """
    if share == 0 or not len(pool):
        return None
    questions = [query, *query.also]
    headings = [pool.heading(row) for row in range(len(pool))]
    words = pool_words(
        list(pool.texts),
        [one.text for one in questions],
        headings=headings if any(headings) else None,
    )
    if not words.has_words.any():
        return None
    of_words = WORDS_IN_RELEVANCE * share * words.question_has_words[:, np.newaxis]
    cosines = np.stack([cosine_similarities(one.vector, pool.embeddings) for one in questions])
    relevance = (1 - of_words) * cosines + of_words * words.question
    if pool.relevance is not None:
        relevance = np.stack([in_the_order_of(pool.relevance, row) for row in relevance])
    parts = [question_parts(words, one.text, i) for i, one in enumerate(questions)]
    spreads = []
    if pool.relevance is None and len(pool) >= FEWEST_TO_READ:
        rows = unit_rows(pool.embeddings)
        gram = rows @ rows.T
        for row, own in zip(relevance, parts, strict=True):
            kept = distinct_of_region(gram, row)
            spreads.append(spread(words, row, kept, own))
    return PoolReading(
        words=words,
        cosines=cosines,
        relevance=relevance,
        spreads=tuple(spreads),
        parts=tuple(part for own in parts for part in own),
    )
