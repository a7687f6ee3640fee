"""One pool for several queries: what is near any of them, in one trip to the store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeGuard

import numpy as np

from sift_core.checks import check_queries
from sift_core.protocols import CandidateSource, Embedder, LexicalSource, Lookup
from sift_core.selection.cosines import cosine_similarities
from sift_core.selection.word_counts import words_of
from sift_core.sources.contract import afetch_all, fetch_all
from sift_core.types import CandidatePool, Query

RANK_SHIFT = 60  # Cormack, Clarke and Buettcher (SIGIR 2009), measured there


def queries_of(texts: Sequence[str], embedder: Embedder) -> Query:
    """Return one or more texts, embedded, as a query with the others in `also`.

    Raises:
        InvalidInputError: If there is none, it is one text and no list, or one is empty.
    """
    check_queries(texts)
    vectors = map(embedder.embed_query, texts)
    return Query.of_each(texts, vectors, embedder_name=embedder.name)


def fetch_for_all(
    source: CandidateSource,
    query: Query,
    n_candidates: int,
    *,
    filter: Any = None,
    with_words: bool = False,
) -> CandidatePool:
    """Return the nearest documents of a query and of those in its `also`, each document once.

    A query alone is fetched as it is. Several are asked for in one batch where the source takes
    one, else one after another. Documents come by their best rank for any of the queries; a
    document is identified by its id and text. `similarities` are cosines with the nearest query.
    If the source gives fused scores, `relevance` is one over the best rank by these.

    With words, a `LexicalSource` also looks for the words of each query's text, all in one trip.
    The two lists of a query are fused: a document's score is the sum of 1 / (60 + rank) over the
    lists that have it (Cormack et al., 2009), and the first `n_candidates` stay, in that order.
    A query without words, such as "???", is looked for by its vector alone.

    Args:
        source: Any source.
        query: What to look for.
        n_candidates: How many at most for each query, >= 1.
        filter: The source's own kind of filter. Default: no restriction.
        with_words: Whether to look for words where the source can. Default: False.

    Raises:
        CandidateSourceError: If the store fails.
        InvalidInputError: If a query and the source do not fit together.
    """
    queries = [query, *query.also]
    if with_words and _looks_up(source) and (lookups := _lookups(queries, n_candidates)):
        pools = source.look_up(query, lookups, filter=filter)
        return _of_lookups(query, pools, n_candidates)
    if len(queries) == 1:
        return source.fetch(query, n_candidates, filter=filter)
    return _joined(query, fetch_all(source, queries, n_candidates, filter))


async def afetch_for_all(
    source: CandidateSource,
    query: Query,
    n_candidates: int,
    *,
    filter: Any = None,
    with_words: bool = False,
) -> CandidatePool:
    """Return what `fetch_for_all` returns, without blocking the event loop.

    A source without batches is asked for all at once.
    """
    queries = [query, *query.also]
    if with_words and _looks_up(source) and (lookups := _lookups(queries, n_candidates)):
        pools = await source.alook_up(query, lookups, filter=filter)
        return await asyncio.to_thread(_of_lookups, query, pools, n_candidates)
    if len(queries) == 1:
        return await source.afetch(query, n_candidates, filter=filter)
    pools = await afetch_all(source, queries, n_candidates, filter)
    return await asyncio.to_thread(_joined, query, pools)


def _looks_up(source: CandidateSource) -> TypeGuard[LexicalSource]:
    """Return whether a source takes lookups; one that keeps no words says so when it is asked.

    `isinstance` reads `has_words` before Python 3.12, for which a store may have to be asked.
    """
    return hasattr(source, "look_up") and hasattr(source, "alook_up")


def _lookups(queries: Sequence[Query], n_candidates: int) -> list[Lookup]:
    """Return lookups of all vectors, then of the words of those that have any; none if none has."""
    all_words = [words for one in queries if (words := words_of(one.text))]
    if not all_words:
        return []
    vectors = [Lookup(n_candidates=n_candidates, vector=one.vector) for one in queries]
    return vectors + [Lookup(n_candidates=n_candidates, words=words) for words in all_words]


def _of_lookups(query: Query, pools: Sequence[CandidatePool], n_candidates: int) -> CandidatePool:
    """Return one pool of what was found for the `_lookups` of a query and those in its `also`."""
    queries = [query, *query.also]
    by_words = iter(pools[len(queries) :])
    fused = [
        _fused([near, next(by_words)], n_candidates) if words_of(one.text) else near
        for one, near in zip(queries, pools, strict=False)
    ]
    return fused[0] if len(fused) == 1 else _joined(query, fused)


def _fused(pools: Sequence[CandidatePool], n_candidates: int) -> CandidatePool:
    """Return the rows of several lists by reciprocal rank, each document once, ties by list."""
    found = [pool for pool in pools if len(pool)]
    if len(found) < 2:
        return (found or pools)[0]
    scores: dict[tuple[str, str], float] = {}
    rows: dict[tuple[str, str], int] = {}
    start = 0
    for pool in found:
        ranks: dict[tuple[str, str], int] = {}
        for rank, key in enumerate(zip(pool.document_ids, pool.texts, strict=True), 1):
            ranks.setdefault(key, rank)
        for key, rank in ranks.items():
            scores[key] = scores.get(key, 0.0) + 1 / (RANK_SHIFT + rank)
            rows.setdefault(key, start + rank - 1)
        start += len(pool)
    best = sorted(scores, key=lambda key: -scores[key])[:n_candidates]
    return replace(CandidatePool.concatenate(found).take([rows[key] for key in best]), scores=())


def _joined(query: Query, pools: Sequence[CandidatePool]) -> CandidatePool:
    """Return the rows of all pools, each document once, by best rank, ties by query."""
    has_scores = any(pool.relevance is not None for pool in pools)
    ranked = [(rank, i, row) for i, pool in enumerate(pools) for rank, row in _ranked(pool)]
    first: dict[tuple[str, str], tuple[int, int, int]] = {}
    for rank, i, row in sorted(ranked):
        key = (pools[i].document_ids[row], pools[i].texts[row])
        first.setdefault(key, (rank, i, row))
    if not first:
        return pools[0]
    starts = np.cumsum([0, *map(len, pools)]).tolist()
    kept = CandidatePool.concatenate(pools).take([starts[i] + row for _, i, row in first.values()])
    ranks = np.array([rank for rank, _, _ in first.values()])
    return replace(
        kept,
        similarities=cosine_similarities(query.vectors, kept.embeddings),
        relevance=1.0 / (1 + ranks) if has_scores else None,
    )


def _ranked(pool: CandidatePool) -> list[tuple[int, int]]:
    """Return rank and row of each document."""
    if pool.relevance is None:
        return [(row, row) for row in range(len(pool))]
    order = np.argsort(-pool.relevance, kind="stable").tolist()
    return list(enumerate(order))
