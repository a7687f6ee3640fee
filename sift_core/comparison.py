"""Choose from the same candidates by other methods, and find the rare words of the question.

The methods are nearest neighbours, MMR, hybrid search by rank, and the choice itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from sift_core.choice import choose_checked
from sift_core.explanation import Chosen
from sift_core.options import ChoiceOptions
from sift_core.selection.baselines import MMRSelector, NearestNeighborSelector
from sift_core.selection.word_counts import words_of
from sift_core.selection.words import PoolWords, pool_words
from sift_core.sources.multi_query import RANK_SHIFT
from sift_core.types import CandidatePool, FloatArray

MMR_WEIGHT = 0.7  # of relevance: the middle one of those that `sift eval retrieval` measures
TITLES = {
    "nearest": "nearest neighbours",
    "mmr": f"MMR, weight {MMR_WEIGHT}",
    "hybrid": "hybrid, by rank",
    "sift": "SIFT",
}
MOST_COMMON = 0.2  # A word that a larger share of the candidates has is not rare. A guess.
N_WORDS = 6  # as many rare words as a reader takes in


@dataclass(frozen=True, kw_only=True)
class RareWord:
    """A rare word of the question, and where the methods found it.

    Args:
        word: In lower case.
        n_candidates: How many candidates have it; 0 if none has.
        ranks: For each method the ranks, from 1, of its passages with the word.
    """

    word: str
    n_candidates: int
    ranks: Mapping[str, tuple[int, ...]]


def compare_methods(chosen: Chosen, n_select: int) -> Mapping[str, Chosen]:
    """Return what each method of `TITLES` chooses from the candidates of a choice, it the last.

    MMR is the one that `sift eval retrieval` measures, so that a user who goes on to measure
    meets the same method. It and the nearest neighbours go by embeddings alone. The hybrid search
    adds 1 / (60 + rank) by cosine and by the cosine of words (TF-IDF), as search engines do.

    Args:
        chosen: The choice.
        n_select: How many chunks the others choose, >= 1.
    """
    nearest = ChoiceOptions(n_select=n_select, words=0, selector=NearestNeighborSelector())
    mmr = replace(nearest, selector=MMRSelector(relevance_weight=MMR_WEIGHT))
    pool, query = chosen.pool, chosen.query
    fused = replace(pool, relevance=_fused_relevance(chosen)) if len(pool) else pool
    return {
        "nearest": choose_checked(replace(pool, relevance=None), query, nearest),
        "mmr": choose_checked(replace(pool, relevance=None), query, mmr),
        "hybrid": choose_checked(fused, query, nearest),
        "sift": chosen,
    }


def rare_words(chosen: Chosen, columns: Mapping[str, Chosen]) -> list[RareWord]:
    """Return the rare words of the question, rarest first, and which passages have them.

    A word is rare if at most 20 % of the candidates have it. At most 6 are returned.

    Args:
        chosen: The choice whose candidates are counted.
        columns: The choice of each method, as `compare_methods` returns them.
    """
    words, n = _words_of_pool(chosen), len(chosen.pool)
    counts: dict[str, int] = {}
    n_absent = 0
    for word in dict.fromkeys(words_of(chosen.query.text)):
        count = int(np.count_nonzero(words.shares_of([word])))
        if count <= max(1, MOST_COMMON * n):
            counts[word] = count
            n_absent += not count
        if n_absent == N_WORDS:  # none is rarer; a query may have 100,000 other words
            break
    rarest = sorted(counts, key=counts.__getitem__)[:N_WORDS]
    return [
        RareWord(word=word, n_candidates=counts[word], ranks=_ranks_with(word, words, columns))
        for word in rarest
    ]


def _ranks_with(
    word: str, words: PoolWords, columns: Mapping[str, Chosen]
) -> dict[str, tuple[int, ...]]:
    """Return for each method the ranks of its passages with a word."""
    has_word = words.shares_of([word]) > 0
    return {
        name: tuple(
            rank
            for rank, passage in enumerate(column.passages, start=1)
            if has_word[list(passage.rows)].any()
        )
        for name, column in columns.items()
    }


def _fused_relevance(chosen: Chosen) -> FloatArray:
    """Return the sum of 1 / (60 + rank) by cosine and by words of each candidate, shape (n,)."""
    by_cosine = 1 / (RANK_SHIFT + _ranks(chosen.pool.similarities))
    cosines = _words_of_pool(chosen).question.max(axis=0)
    by_words = np.where(cosines > 0, 1 / (RANK_SHIFT + _ranks(cosines)), 0.0)
    fused: FloatArray = by_cosine + by_words
    return fused


def _ranks(scores: FloatArray) -> FloatArray:
    """Return the rank of each score from 1, the largest first, ties by position."""
    ranks = np.empty(len(scores))
    ranks[np.argsort(-scores, kind="stable")] = np.arange(1, len(scores) + 1)
    return ranks


def _words_of_pool(chosen: Chosen) -> PoolWords:
    """Return the words that the choice went by, or those of its candidates if it read none."""
    if chosen.reading is not None:
        return chosen.reading.words
    pool: CandidatePool = chosen.pool
    headings = [pool.heading(row) for row in range(len(pool))]
    questions = [one.text for one in (chosen.query, *chosen.query.also)]
    return pool_words(list(pool.texts), questions, headings=headings if any(headings) else None)
