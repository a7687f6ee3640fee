"""One pool for several queries: what is near any of them, in one trip to the store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sift_core.checks import check_queries
from sift_core.protocols import BatchCandidateSource, CandidateSource, Embedder
from sift_core.selection.cosines import cosine_similarities
from sift_core.types import CandidatePool, Query


def queries_of(texts: Sequence[str], embedder: Embedder) -> Query:
    """Return one or more texts, embedded, as a query with the others in `also`.

    Raises:
        InvalidInputError: If there is none, it is one text and no list, or one is empty.
    """
    check_queries(texts)
    vectors = map(embedder.embed_query, texts)
    return Query.of_each(texts, vectors, embedder_name=embedder.name)


def fetch_for_all(
    source: CandidateSource, query: Query, n_candidates: int, *, filter: Any = None
) -> CandidatePool:
    """Return the nearest documents of a query and of those in its `also`, each document once.

    A query alone is fetched as it is. Several are asked for in one batch where the source takes
    one, else one after another. Documents come by their best rank for any of the queries; a
    document is identified by its id and text. `similarities` are cosines with the nearest query.
    If the source gives fused scores, `relevance` is one over the best rank by these.

    Args:
        source: Any source.
        query: What to look for.
        n_candidates: How many at most for each query, >= 1.
        filter: The source's own kind of filter; None for no restriction.

    Raises:
        CandidateSourceError: If the store fails.
        InvalidInputError: If a query and the source do not fit together.
    """
    queries = [query, *query.also]
    if len(queries) == 1:
        return source.fetch(query, n_candidates, filter=filter)
    if isinstance(source, BatchCandidateSource):
        pools = source.fetch_batch(queries, n_candidates, filter=filter)
    else:
        pools = [source.fetch(one, n_candidates, filter=filter) for one in queries]
    return _joined(query, pools)


async def afetch_for_all(
    source: CandidateSource, query: Query, n_candidates: int, *, filter: Any = None
) -> CandidatePool:
    """Return what `fetch_for_all` returns, without blocking the event loop.

    A source without batches is asked for all at once.
    """
    queries = [query, *query.also]
    if len(queries) == 1:
        return await source.afetch(query, n_candidates, filter=filter)
    if isinstance(source, BatchCandidateSource):
        pools = await source.afetch_batch(queries, n_candidates, filter=filter)
    else:
        found = (source.afetch(one, n_candidates, filter=filter) for one in queries)
        pools = await asyncio.gather(*found)
    return await asyncio.to_thread(_joined, query, pools)


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
