"""The second hop: one more fetch, for what the first choices lead to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sift_core.explanation import Chosen, Hop
from sift_core.options import ChoiceOptions
from sift_core.protocols import CandidateSource, LexicalSource, Lookup
from sift_core.selection.cosines import cosine_similarities
from sift_core.types import CandidatePool

# Decision 0036 has the measurements behind these four numbers.
N_SEEDS = 3  # choices whose rare words and vectors are looked for
N_RARE_WORDS = 24  # words of a seed that the question does not have
N_BY_WORDS = 30  # documents for the words of each seed, at most as many as candidates are asked for
N_NEAR = 20  # the same near the vector of each seed


@dataclass(frozen=True, kw_only=True)
class SecondHop:
    """What a second fetch looks for.

    Args:
        source: A source that finds documents by words.
        lookups: What it is asked for, in one trip.
        seeds: Rows of the first choices.
        words: Rare words of each of these.
    """

    source: LexicalSource
    lookups: Sequence[Lookup]
    seeds: Sequence[int]
    words: Sequence[Sequence[str]]

    def joined(self, chosen: Chosen, pools: Sequence[CandidatePool]) -> CandidatePool:
        """Return the first candidates and then the new ones, each document once.

        Args:
            chosen: The first choice.
            pools: What was found for `lookups`.
        """
        pool = chosen.pool
        known = set(pool.chunk_keys)
        news = []
        for found in pools:
            keys = found.chunk_keys
            rows = [row for row, key in enumerate(keys) if key not in known]
            known.update(keys)
            if rows:
                news.append(found.take(rows))
        if not news:
            return pool
        new = CandidatePool.concatenate(news)
        cosines = cosine_similarities(chosen.query.vectors, new.embeddings)
        return CandidatePool.concatenate([pool, replace(new, similarities=cosines, scores=())])

    def record(self, chosen: Chosen, pool: CandidatePool) -> Hop:
        """Return what the hop looked for and brought, given the first choice and the new pool."""
        ids = chosen.pool.document_ids
        return Hop(
            seeds=tuple(ids[row] for row in self.seeds),
            words=tuple(tuple(words) for words in self.words),
            first_row=len(chosen.pool),
            n_new=len(pool) - len(chosen.pool),
        )


def second_hop(source: CandidateSource, chosen: Chosen, options: ChoiceOptions) -> SecondHop | None:
    """Return what to look for after a first choice; None if there is nothing.

    It is the rare words of the first choices, what is near their vectors, and the names in the
    question that no candidate has.

    There is nothing without `hops` or without words, from a source that keeps no words, and beside
    scores of the store's own.

    Args:
        source: Where the candidates come from.
        chosen: The first choice.
        options: What the choice obeys.
    """
    if not options.hops or chosen.pool.relevance is not None:
        return None
    if chosen.reading is None:
        return None
    words = chosen.reading.words
    if not (isinstance(source, LexicalSource) and source.has_words):
        return None
    seeds = list(dict.fromkeys(chosen.positions.tolist()))[:N_SEEDS]
    if not seeds:
        return None
    rare = [words.rare_words(row, N_RARE_WORDS) for row in seeds]
    n_by_words, n_near = (min(n, options.n_candidates) for n in (N_BY_WORDS, N_NEAR))
    by_words = [Lookup(n_candidates=n_by_words, words=one) for one in rare if one]
    embeddings = chosen.pool.embeddings[seeds]
    near = [Lookup(n_candidates=n_near, vector=embedding) for embedding in embeddings]
    missing = [
        Lookup(n_candidates=n_by_words, words=part.words) for part in chosen.reading.missing_parts
    ]
    return SecondHop(source=source, lookups=[*by_words, *near, *missing], seeds=seeds, words=rare)
