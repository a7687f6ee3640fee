"""Several stores asked as one: slices of a collection on many machines, or several collections."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from sift_core.checks import as_count, check_source
from sift_core.errors import CandidateSourceError, InvalidInputError
from sift_core.protocols import CandidateSource, Lookup
from sift_core.selection.cosines import cosine_similarities
from sift_core.sources.contract import (
    LexicalFetching,
    afetch_all,
    alook_up,
    fetch_all,
    has_words,
    look_up,
)
from sift_core.types import CandidatePool, Query


class CombinedSource(LexicalFetching):
    """The nearest documents of several sources, each asked for `n_candidates` at the same time.

    Each source must hold documents of its own: one that is in two of them comes twice. If one
    source fails, so does the fetch, also if it is empty: a list that lacks a part of the
    collection would pass for complete.

    Documents are combined by cosine, so that slices of a collection give what the whole would give
    if its metric is the cosine, or its vectors are of unit length. Sources whose scores are not
    cosines (`fusion`) are refused, as scores of two fusions cannot be compared.

    Args:
        sources: One or more, by name; the name goes before a failure's message. All must have
            vectors of one embedder.

    Raises:
        InvalidInputError: If there is none, or they name different embedders.

    Example:
        >>> vectors = embedder.embed_documents(["The ferry has a bar."])
        >>> bar = InMemorySource(vectors, ["The ferry has a bar."], document_ids=["bar"])
        >>> both = CombinedSource({"harbour": source, "ships": bar})
        >>> both.fetch(query, n_candidates=3).document_ids
        ('prices', 'bar', 'timetable')
    """

    def __init__(self, sources: Mapping[str, CandidateSource]) -> None:
        if not isinstance(sources, Mapping):
            raise InvalidInputError(
                f"`sources` must be a mapping from names to sources, got {type(sources).__name__}"
            )
        if not sources:
            raise InvalidInputError("`sources` must have at least 1 source, got none")
        for name, source in sources.items():
            check_source(f"sources[{name!r}]", source, "fetch", "afetch")
        named = {name: getattr(source, "embedder_name", None) for name, source in sources.items()}
        embedders = set(named.values()) - {None}
        if len(embedders) > 1:
            raise InvalidInputError(
                f"all sources must have vectors of one embedder, got {named}; similarities of "
                f"different models cannot be compared"
            )
        self._sources = dict(sources)
        self.embedder_name: str | None = next(iter(embedders), None)

    def fetch_batch(
        self, queries: Sequence[Query], n_candidates: int, *, filter: Any = None
    ) -> list[CandidatePool]:
        """Return the nearest documents of all sources, nearest first by cosine.

        Asks every source in a thread of its own, and waits for the slowest, also where another
        has failed. Of equally near documents those of the source named first come first.

        Args:
            queries: What to look for.
            n_candidates: How many at most, >= 1, of each source and of all.
            filter: Passed to every source: all must take the same kind.

        Raises:
            CandidateSourceError: If a source fails; its name comes first.
            InvalidInputError: If queries and sources do not fit together, a source is empty, or
                one gives fused scores.
        """
        as_count("n_candidates", n_candidates, minimum=1)

        answers = self._ask(lambda source: fetch_all(source, queries, n_candidates, filter))
        return [_nearest(pools, n_candidates) for pools in zip(*answers, strict=True)]

    async def afetch_batch(
        self, queries: Sequence[Query], n_candidates: int, *, filter: Any = None
    ) -> list[CandidatePool]:
        """Return what `fetch_batch` returns; all sources are awaited at once.

        The others are cancelled where one fails.
        """
        as_count("n_candidates", n_candidates, minimum=1)

        answers = await self._aask(lambda source: afetch_all(source, queries, n_candidates, filter))
        return [_nearest(pools, n_candidates) for pools in zip(*answers, strict=True)]

    @property
    def wrapped_source(self) -> CandidateSource:
        """The first of the sources, which all take the same kind of filter."""
        return next(iter(self._sources.values()))

    @property
    def has_words(self) -> bool:
        """Whether all sources keep the words of their documents, as far as they know."""
        return all(map(has_words, self._sources.values()))

    def look_up(
        self, query: Query, lookups: Sequence[Lookup], *, filter: Any = None
    ) -> list[CandidatePool]:
        """Return one pool for each lookup, with one trip to each source, all at the same time.

        Lists of vectors are combined by cosine. Lists of words are joined rank by rank, since BM25
        of different collections cannot be compared: the first document of each source in the order
        of the sources, then the second of each. A source without words adds none.

        Args:
            query: Whose cosine with each row is in `similarities`.
            lookups: Vectors and words.
            filter: Passed to every source.

        Raises:
            CandidateSourceError: As `fetch_batch`.
            InvalidInputError: As `fetch_batch`.
        """
        answers = self._ask(lambda source: look_up(source, query, lookups, filter))
        return _joined(query, lookups, answers)

    async def alook_up(
        self, query: Query, lookups: Sequence[Lookup], *, filter: Any = None
    ) -> list[CandidatePool]:
        """Return what `look_up` returns; all sources are awaited at once."""
        answers = await self._aask(lambda source: alook_up(source, query, lookups, filter))
        return _joined(query, lookups, answers)

    def _ask(
        self, call: Callable[[CandidateSource], list[CandidatePool]]
    ) -> list[list[CandidatePool]]:
        """Return what each source answers, asked in a thread of its own."""

        def ask(name: str) -> list[CandidatePool]:
            try:
                return call(self._sources[name])
            except (CandidateSourceError, InvalidInputError) as error:
                raise _named(name, error) from error

        with ThreadPoolExecutor(len(self._sources)) as executor:
            return list(executor.map(ask, self._sources))

    async def _aask(
        self, call: Callable[[CandidateSource], Awaitable[list[CandidatePool]]]
    ) -> list[list[CandidatePool]]:
        """Return what each source answers; the others are cancelled where one fails."""

        async def ask(name: str) -> list[CandidatePool]:
            try:
                return await call(self._sources[name])
            except (CandidateSourceError, InvalidInputError) as error:
                raise _named(name, error) from error

        tasks = [asyncio.ensure_future(ask(name)) for name in self._sources]
        try:
            return list(await asyncio.gather(*tasks))
        except BaseException:
            for task in tasks:  # the others' answers are of no use any more
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise


def _named(
    name: str, error: CandidateSourceError | InvalidInputError
) -> CandidateSourceError | InvalidInputError:
    message = f"source {name!r}: {error}"
    if isinstance(error, CandidateSourceError):
        return CandidateSourceError(message, retry_after_s=error.retry_after_s)
    return InvalidInputError(message)


def _joined(
    query: Query, lookups: Sequence[Lookup], answers: Sequence[Sequence[CandidatePool]]
) -> list[CandidatePool]:
    """Return one pool a lookup from the pools of every source."""
    return [
        _nearest(pools, lookup.n_candidates, None if lookup.vector is query.embedding else lookup)
        if lookup.words is None
        else _rank_by_rank(pools, lookup.n_candidates)
        for lookup, *pools in zip(lookups, *answers, strict=True)
    ]


def _rank_by_rank(pools: Sequence[CandidatePool], n_candidates: int) -> CandidatePool:
    """Return the first row of each pool, then the second of each, and so on."""
    ranks = np.concatenate([np.arange(len(pool)) for pool in pools])
    order = np.argsort(ranks, kind="stable")[:n_candidates]
    return CandidatePool.concatenate(pools).take(order)


def _nearest(
    pools: Sequence[CandidatePool], n_candidates: int, lookup: Lookup | None = None
) -> CandidatePool:
    """Return the rows of all pools with the largest cosines, ties in the order given.

    Args:
        pools: One or more.
        n_candidates: How many at most.
        lookup: Whose vector is compared. Default: the pools' `similarities` say what is nearest.
    """
    if any(pool.relevance is not None for pool in pools):
        raise InvalidInputError(
            "sources to be combined must rank by similarity, got one with fused scores "
            "(`relevance`), which cannot be compared with another's; leave `fusion` out"
        )
    combined = CandidatePool.concatenate(pools)
    cosines = combined.similarities
    if lookup is not None and lookup.vector is not None and len(combined):
        cosines = cosine_similarities(lookup.vector, combined.embeddings)
    return combined.take(np.argsort(-cosines, kind="stable")[:n_candidates])
