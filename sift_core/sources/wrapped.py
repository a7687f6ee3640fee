"""What sources around other sources ask these for, whatever they are able to answer."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sift_core.protocols import BatchCandidateSource, CandidateSource, Lookup
from sift_core.sources.contract import query_of, with_cosines
from sift_core.types import CandidatePool, Query


def has_words(source: CandidateSource) -> bool:
    """Return whether a source keeps the words of its documents, as far as it knows."""
    return bool(getattr(source, "has_words", False))


def fetch_all(
    source: CandidateSource, queries: Sequence[Query], n_candidates: int, filter: Any
) -> list[CandidatePool]:
    """Return what `fetch` returns for each query, in one batch where the source takes batches."""
    if len(queries) != 1 and isinstance(source, BatchCandidateSource):
        return source.fetch_batch(queries, n_candidates, filter=filter)
    return [source.fetch(query, n_candidates, filter=filter) for query in queries]


async def afetch_all(
    source: CandidateSource, queries: Sequence[Query], n_candidates: int, filter: Any
) -> list[CandidatePool]:
    """Return what `fetch_all` returns; a source without batches is asked for all at once."""
    if len(queries) != 1 and isinstance(source, BatchCandidateSource):
        return await source.afetch_batch(queries, n_candidates, filter=filter)
    calls = (source.afetch(query, n_candidates, filter=filter) for query in queries)
    return list(await asyncio.gather(*calls))


def look_up(
    source: Any, query: Query, lookups: Sequence[Lookup], filter: Any
) -> list[CandidatePool]:
    """Return what a source finds; one without `look_up` finds nothing for words."""
    if hasattr(source, "look_up"):
        found: list[CandidatePool] = source.look_up(query, lookups, filter=filter)
        return found
    vectors = VectorLookups(query, lookups)
    return vectors.pools(
        {n: fetch_all(source, queries, n, filter) for n, queries in vectors.queries.items()}
    )


async def alook_up(
    source: Any, query: Query, lookups: Sequence[Lookup], filter: Any
) -> list[CandidatePool]:
    """Return what `look_up` returns, without blocking the event loop."""
    if hasattr(source, "alook_up"):
        found: list[CandidatePool] = await source.alook_up(query, lookups, filter=filter)
        return found
    vectors = VectorLookups(query, lookups)
    return vectors.pools(
        {n: await afetch_all(source, queries, n, filter) for n, queries in vectors.queries.items()}
    )


class VectorLookups:
    """The vectors among lookups, as queries for `fetch`.

    Args:
        query: Whose cosines are wanted.
        lookups: Vectors and words.

    Attributes:
        queries: By number of candidates, in the order of the lookups.
        places: Where these stand among the lookups.
    """

    def __init__(self, query: Query, lookups: Sequence[Lookup]) -> None:
        self._query, self._n_lookups = query, len(lookups)
        self.queries: dict[int, list[Query]] = defaultdict(list)
        self.places: dict[int, list[int]] = defaultdict(list)
        for place, lookup in enumerate(lookups):
            if lookup.vector is not None:
                self.queries[lookup.n_candidates].append(query_of(query, lookup))
                self.places[lookup.n_candidates].append(place)

    def pools(self, found: dict[int, list[CandidatePool]]) -> list[CandidatePool]:
        """Return one pool for each lookup of what was found for `queries`, empty for words."""
        empty = CandidatePool.empty(dimension=len(self._query.vector))
        return self.put_into([empty] * self._n_lookups, found)

    def put_into(
        self, pools: Sequence[CandidatePool], found: dict[int, list[CandidatePool]]
    ) -> list[CandidatePool]:
        """Return the pools of all lookups, those of vectors replaced by what was found."""
        pools = list(pools)
        for n, places in self.places.items():
            for place, near, pool in zip(places, self.queries[n], found[n], strict=True):
                pools[place] = pool if near is self._query else with_cosines(self._query, pool)
        return pools
