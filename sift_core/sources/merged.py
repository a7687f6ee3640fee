"""Several stores asked as one: slices of a collection on many machines, or several collections."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from sift_core.checks import as_count
from sift_core.errors import CandidateSourceError, InvalidInputError
from sift_core.protocols import BatchCandidateSource, CandidateSource
from sift_core.sources.contract import BatchFetching
from sift_core.types import CandidatePool, Query


class MergedSource(BatchFetching):
    """The nearest documents of several sources, each asked for `n_candidates` at the same time.

    Each source must hold documents of its own: one that is in two of them comes twice. If one
    source fails, so does the fetch, also if it is empty: a list that lacks a part of the
    collection would pass for complete.

    Documents are merged by cosine, so that slices of a collection give what the whole would give
    if its metric is the cosine, or its vectors are of unit length. Sources whose scores are not
    cosines (`fusion`) are refused, as scores of two fusions cannot be compared.

    Args:
        sources: One or more, by name; the name goes before a failure's message. All must have
            vectors of one embedder.

    Raises:
        InvalidInputError: If there is none, or they name different embedders.
    """

    def __init__(self, sources: Mapping[str, CandidateSource]) -> None:
        if not isinstance(sources, Mapping):
            raise InvalidInputError(
                f"`sources` must be a mapping from names to sources, got {type(sources).__name__}"
            )
        if not sources:
            raise InvalidInputError("`sources` must have at least 1 source, got none")
        named = {name: getattr(source, "embedder_name", None) for name, source in sources.items()}
        embedders = set(named.values()) - {None}
        if len(embedders) > 1:
            raise InvalidInputError(
                f"all sources must have vectors of one embedder, got {named}; similarities of "
                f"different models cannot be compared"
            )
        self._sources = dict(sources)
        self.embedder_name = next(iter(embedders), None)

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

        def ask(name: str) -> list[CandidatePool]:
            source = self._sources[name]
            try:
                if isinstance(source, BatchCandidateSource):
                    return source.fetch_batch(queries, n_candidates, filter=filter)
                return [source.fetch(query, n_candidates, filter=filter) for query in queries]
            except (CandidateSourceError, InvalidInputError) as error:
                raise _named(name, error) from error

        with ThreadPoolExecutor(len(self._sources)) as executor:
            return _merged(list(executor.map(ask, self._sources)), n_candidates)

    async def afetch_batch(
        self, queries: Sequence[Query], n_candidates: int, *, filter: Any = None
    ) -> list[CandidatePool]:
        """Return what `fetch_batch` returns; all sources are awaited at once.

        The others are cancelled where one fails.
        """
        as_count("n_candidates", n_candidates, minimum=1)

        async def ask(name: str) -> list[CandidatePool]:
            source = self._sources[name]
            try:
                if isinstance(source, BatchCandidateSource):
                    return await source.afetch_batch(queries, n_candidates, filter=filter)
                calls = (source.afetch(query, n_candidates, filter=filter) for query in queries)
                return list(await asyncio.gather(*calls))
            except (CandidateSourceError, InvalidInputError) as error:
                raise _named(name, error) from error

        tasks = [asyncio.ensure_future(ask(name)) for name in self._sources]
        try:
            return _merged(list(await asyncio.gather(*tasks)), n_candidates)
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


def _merged(answers: Sequence[Sequence[CandidatePool]], n_candidates: int) -> list[CandidatePool]:
    """Return one pool a query from the pools of every source."""
    return [_nearest(pools, n_candidates) for pools in zip(*answers, strict=True)]


def _nearest(pools: Sequence[CandidatePool], n_candidates: int) -> CandidatePool:
    """Return the rows of all pools with the largest similarities, ties in the order given."""
    if any(pool.relevance is not None for pool in pools):
        raise InvalidInputError(
            "sources to be merged must rank by similarity, got one with fused scores "
            "(`relevance`), which cannot be compared with another's; leave `fusion` out"
        )
    merged = CandidatePool.concatenate(pools)
    return merged.take(np.argsort(-merged.similarities, kind="stable")[:n_candidates])
