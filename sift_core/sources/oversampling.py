"""Fetches more candidates where those at hand say too little that is different.

In a redundant collection 200 candidates can be 12 facts, each several times over. What is here
asks a source again, for more, until there are distinct chunks enough to choose from.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from sift_core.checks import as_count, check_source
from sift_core.errors import InvalidInputError
from sift_core.protocols import CandidateSource, Lookup
from sift_core.selection.context import distinct
from sift_core.sources.contract import (
    LexicalFetching,
    VectorLookups,
    afetch_all,
    alook_up,
    fetch_all,
    has_words,
    look_up,
)
from sift_core.types import CandidatePool, FloatArray, IntArray, Query

# Decision 0008 has the measurements behind these.
DISTINCT_A_CHOICE = 2  # distinct chunks that a pool should have for each one that is chosen
LARGEST_SHARE = 0.8  # of `n_candidates`: never are more distinct chunks needed
MORE_FETCHES = 2  # after the first
LARGEST_STEP = 4  # times as many candidates as in the fetch before
MAX_CANDIDATES = 2000  # unless the caller says otherwise, or asks for more at first


class OversamplingSource(LexicalFetching):
    """A source around another one, which it asks for more where candidates are too much alike.

    Whoever takes a `CandidateSource` takes this one, for instance
    `AnswerEngine(source=OversamplingSource(source, n_select=10), …)`.

    Candidates are enough if they have 2 · `n_select` distinct chunks (.8 · `n_candidates` where
    that is less), near-duplicates counted once as `ContextSelector` counts them. If not, the
    source is asked again, at most twice, for as many times more as distinct chunks are missing: at
    most 4 times, rounded up to a multiple of `n_candidates`, never beyond `max_candidates`,
    and not if it returned fewer than it was asked for: then it has no more.

    Where the first fetch is enough, its pool is returned as it is. A larger pool is thinned
    to `n_candidates` documents at most: the distinct chunks, of each the most relevant one, or
    the one that is preferred. Where
    even these are fewer than `n_select`, the most relevant other near-duplicates fill up the pool.

    The rule is for choosing text for a prompt, by whatever selector. The paper's setting, for
    training data, gives repeats a weight of their own: there near-duplicates are no waste, and this
    source is of little use.

    As safe for threads and tasks as the source itself. A first fetch that is enough costs 1 to
    2 ms more (200 candidates of 384 dimensions); counting 1,600 takes some 20 ms.

    Args:
        source: Any source; its errors pass through.
        n_select: How many are to be chosen from a pool, >= 1.
        max_candidates: Fetch at most this many, >= 1. Default: 2,000, or the caller's
            `n_candidates` if that is more.
        prefer: Function of a pool that returns `Preferences.prefer` of it, shape (n,), for
            instance its dates. Default: the most relevant is preferred.

    Raises:
        InvalidInputError: If `source` is no source or a number no count.

    Example:
        >>> more = OversamplingSource(source, n_select=2, max_candidates=100)
        >>> more.fetch(query, n_candidates=2).document_ids
        ('prices', 'timetable')
    """

    def __init__(
        self,
        source: CandidateSource,
        *,
        n_select: int,
        max_candidates: int | None = None,
        prefer: Callable[[CandidatePool], FloatArray | None] | None = None,
    ) -> None:
        check_source("source", source, "fetch", "afetch")
        self._source = source
        self._n_select = as_count("n_select", n_select, minimum=1)
        self._prefer = prefer
        self._max_candidates = max_candidates
        if max_candidates is not None:
            self._max_candidates = as_count("max_candidates", max_candidates, minimum=1)

    @property
    def wrapped_source(self) -> CandidateSource:
        """The source that is asked."""
        return self._source

    @property
    def embedder_name(self) -> str | None:
        """Name of the model behind the source's vectors; None where it is not known."""
        return getattr(self._source, "embedder_name", None)

    def fetch_batch(
        self, queries: Sequence[Query], n_candidates: int, *, filter: Any = None
    ) -> list[CandidatePool]:
        """Return the nearest documents of each query, and where too much alike the distinct ones.

        Only queries that need more are asked again, those that need as many in one batch. A
        source without batches is asked one query after another.

        Args:
            queries: What to look for.
            n_candidates: How many at most for each, >= 1.
            filter: The source's own kind of filter. Default: no restriction.

        Raises:
            InvalidInputError: If `n_candidates` is no count or exceeds `max_candidates`,
                or query and source do not fit together.
            CandidateSourceError: If the store fails in any of the fetches.
        """
        rule = self._rule(n_candidates)
        pools = fetch_all(self._source, queries, rule.n_candidates, filter)
        return self._enough(rule, queries, pools, filter)

    async def afetch_batch(
        self, queries: Sequence[Query], n_candidates: int, *, filter: Any = None
    ) -> list[CandidatePool]:
        """Return what `fetch_batch` returns; distinct chunks are counted in a worker thread."""
        rule = self._rule(n_candidates)
        pools = await afetch_all(self._source, queries, rule.n_candidates, filter)
        return await self._aenough(rule, queries, pools, filter)

    @property
    def has_words(self) -> bool:
        """Whether the source keeps the words of its documents, as far as it knows."""
        return has_words(self._source)

    def look_up(
        self, query: Query, lookups: Sequence[Lookup], *, filter: Any = None
    ) -> list[CandidatePool]:
        """Return one pool for each lookup, in one trip where candidates are not too much alike.

        Lists of vectors obey the rule of `fetch_batch`. Lists of words are the source's.

        Args:
            query: Whose cosine with each row is in `similarities`.
            lookups: Vectors and words.
            filter: The source's own kind of filter. Default: no restriction.

        Raises:
            CandidateSourceError: As `fetch_batch`.
            InvalidInputError: As `fetch_batch`.
        """
        vectors = VectorLookups(query, lookups)
        rules = {n: self._rule(n) for n in vectors.queries}
        pools = look_up(self._source, query, lookups, filter)
        found = {
            n: self._enough(rules[n], queries, [pools[i] for i in vectors.places[n]], filter)
            for n, queries in vectors.queries.items()
        }
        return vectors.put_into(pools, found)

    async def alook_up(
        self, query: Query, lookups: Sequence[Lookup], *, filter: Any = None
    ) -> list[CandidatePool]:
        """Return what `look_up` returns; distinct chunks are counted in a worker thread."""
        vectors = VectorLookups(query, lookups)
        rules = {n: self._rule(n) for n in vectors.queries}
        pools = await alook_up(self._source, query, lookups, filter)
        found = {
            n: await self._aenough(rules[n], queries, [pools[i] for i in vectors.places[n]], filter)
            for n, queries in vectors.queries.items()
        }
        return vectors.put_into(pools, found)

    def _enough(
        self, rule: _Rule, queries: Sequence[Query], pools: Sequence[CandidatePool], filter: Any
    ) -> list[CandidatePool]:
        """Return pools with enough distinct chunks, from those of the first fetch."""
        found = list(map(self._found, queries, pools, [rule.n_candidates] * len(pools)))
        for _ in range(MORE_FETCHES):
            for size, those in rule.next_sizes(found).items():
                pools = fetch_all(self._source, [queries[i] for i in those], size, filter)
                for i, pool in zip(those, pools, strict=True):
                    found[i] = self._found(queries[i], pool, size)
        return rule.thinned(found)

    async def _aenough(
        self, rule: _Rule, queries: Sequence[Query], pools: Sequence[CandidatePool], filter: Any
    ) -> list[CandidatePool]:
        """Return what `_enough` returns, without blocking the event loop."""
        found = list(map(self._found, queries, pools, [rule.n_candidates] * len(pools)))
        for _ in range(MORE_FETCHES):
            for size, those in (await asyncio.to_thread(rule.next_sizes, found)).items():
                some = [queries[i] for i in those]
                pools = await afetch_all(self._source, some, size, filter)
                for i, pool in zip(those, pools, strict=True):
                    found[i] = self._found(queries[i], pool, size)
        return await asyncio.to_thread(rule.thinned, found)

    def _found(self, query: Query, pool: CandidatePool, n_asked: int) -> _Found:
        return _Found(query=query, pool=pool, n_asked=n_asked, prefer=self._prefer)

    def _rule(self, n_candidates: int) -> _Rule:
        """Return what holds for one call.

        Raises:
            InvalidInputError: If `n_candidates` is no count or exceeds `max_candidates`.
        """
        n_candidates = as_count("n_candidates", n_candidates, minimum=1)
        cap = self._max_candidates
        if cap is not None and cap < n_candidates:
            raise InvalidInputError(
                f"`max_candidates` must be >= `n_candidates`, got {cap} and {n_candidates}; it "
                f"limits the first fetch too"
            )
        return _Rule(
            n_candidates=n_candidates,
            n_select=self._n_select,
            cap=max(MAX_CANDIDATES, n_candidates) if cap is None else cap,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Found:
    """What a source returned for a query when it was asked for `n_asked` candidates."""

    query: Query
    pool: CandidatePool
    n_asked: int
    prefer: Callable[[CandidatePool], FloatArray | None] | None

    @cached_property
    def distinct(self) -> IntArray:
        """Positions of the distinct chunks, most relevant first."""
        return self._distinct(None)

    def preferred(self) -> IntArray:
        """Return positions of what stands for each of these."""
        if self.prefer is None:
            return self.distinct
        return self._distinct(self.prefer(self.pool))

    def _distinct(self, prefer: FloatArray | None) -> IntArray:
        """Return positions of distinct chunks; `choose` leaves vectors of zeros out."""
        pool = self.pool
        rows = np.flatnonzero(pool.embeddings.any(axis=1))
        kept = distinct(
            self.query.vector,
            pool.embeddings[rows],
            relevance=None if pool.relevance is None else pool.relevance[rows],
            prefer=None if prefer is None else np.asarray(prefer)[rows],
        )
        return rows[kept]


@dataclass(frozen=True, kw_only=True)
class _Rule:
    """When to ask again, for how many, and what to return: the numbers of one call."""

    n_candidates: int
    n_select: int
    cap: int

    @property
    def n_distinct(self) -> int:
        """How many distinct chunks are enough."""
        most = math.ceil(LARGEST_SHARE * self.n_candidates)
        return min(DISTINCT_A_CHOICE * self.n_select, most)

    def next_sizes(self, found: Sequence[_Found]) -> dict[int, list[int]]:
        """Return number of candidates → the queries to ask for so many; others need no more."""
        queries: dict[int, list[int]] = defaultdict(list)
        for i, each in enumerate(found):
            if each.n_asked >= self.cap or len(each.pool) < each.n_asked:
                continue
            missing = self.n_distinct / max(1, len(each.distinct))
            if missing > 1:  # contents are taken to grow in proportion to candidates
                steps = math.ceil(each.n_asked * min(missing, LARGEST_STEP) / self.n_candidates)
                queries[min(steps * self.n_candidates, self.cap)].append(i)
        return queries

    def thinned(self, found: Sequence[_Found]) -> list[CandidatePool]:
        """Return the pools, the larger ones with `n_candidates` documents at most."""
        return [
            each.pool if each.n_asked == self.n_candidates else each.pool.take(self._kept(each))
            for each in found
        ]

    def _kept(self, found: _Found) -> IntArray:
        """Return the positions to keep, in the order of the pool."""
        kept = found.preferred()[: self.n_candidates]
        if len(kept) < self.n_select:
            rest = np.setdiff1d(np.arange(len(found.pool)), kept)
            kept = np.concatenate([kept, rest[: self.n_candidates - len(kept)]])
        return np.sort(kept)
