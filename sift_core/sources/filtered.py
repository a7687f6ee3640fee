"""A source without some of its documents, chosen by a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from sift_core.protocols import CandidateSource, Lookup
from sift_core.sources.contract import (
    LexicalFetching,
    afetch_all,
    alook_up,
    fetch_all,
    has_words,
    look_up,
)
from sift_core.types import CandidatePool, Query

SPARE = 64  # candidates fetched beyond those wanted, to replace those that are left out

Keep: TypeAlias = Callable[[str, Mapping[str, Any]], bool]
"""Says of a document's text and metadata whether it may be a candidate."""


class FilteredSource(LexicalFetching):
    """The documents of another source that a function keeps.

    Each list is fetched with 64 candidates more than are wanted. It is shorter than wanted if more
    than 64 are left out, or if the store has no more.

    Args:
        source: Any source; its errors pass through.
        keep: Called with the text and the metadata of each candidate.
    """

    def __init__(self, source: CandidateSource, keep: Keep) -> None:
        self._source, self._keep = source, keep

    @property
    def wrapped_source(self) -> CandidateSource:
        """The other source."""
        return self._source

    @property
    def embedder_name(self) -> str | None:
        """Name of the model behind the source's vectors; None where it is not known."""
        return getattr(self._source, "embedder_name", None)

    @property
    def collection_name(self) -> str:
        """Name of the other source's collection, or else of its class."""
        return str(getattr(self._source, "collection_name", "") or type(self._source).__name__)

    @property
    def has_words(self) -> bool:
        """Whether the source keeps the words of its documents, as far as it knows."""
        return has_words(self._source)

    def fetch_batch(
        self, queries: Sequence[Query], n_candidates: int, *, filter: Any = None
    ) -> list[CandidatePool]:
        """Return the nearest documents that are kept, nearest first.

        Raises:
            CandidateSourceError: If the store fails.
            InvalidInputError: If queries and source do not fit together.
        """
        pools = fetch_all(self._source, queries, n_candidates + SPARE, filter)
        return [self._kept(pool, n_candidates) for pool in pools]

    async def afetch_batch(
        self, queries: Sequence[Query], n_candidates: int, *, filter: Any = None
    ) -> list[CandidatePool]:
        """Return what `fetch_batch` returns, without blocking the event loop."""
        pools = await afetch_all(self._source, queries, n_candidates + SPARE, filter)
        return [self._kept(pool, n_candidates) for pool in pools]

    def look_up(
        self, query: Query, lookups: Sequence[Lookup], *, filter: Any = None
    ) -> list[CandidatePool]:
        """Return one pool for each lookup, of the documents that are kept.

        Errors are those of `fetch_batch`.
        """
        return self._all_kept(look_up(self._source, query, _longer(lookups), filter), lookups)

    async def alook_up(
        self, query: Query, lookups: Sequence[Lookup], *, filter: Any = None
    ) -> list[CandidatePool]:
        """Return what `look_up` returns, without blocking the event loop."""
        return self._all_kept(
            await alook_up(self._source, query, _longer(lookups), filter), lookups
        )

    def keeps(self, pool: CandidatePool) -> bool:
        """Return whether all candidates of a pool may be candidates here."""
        return all(map(self._keep, pool.texts, pool.metadata))

    def _all_kept(
        self, pools: Sequence[CandidatePool], lookups: Sequence[Lookup]
    ) -> list[CandidatePool]:
        return [
            self._kept(pool, one.n_candidates) for pool, one in zip(pools, lookups, strict=True)
        ]

    def _kept(self, pool: CandidatePool, n_candidates: int) -> CandidatePool:
        keeps = map(self._keep, pool.texts, pool.metadata)
        rows = [row for row, is_kept in enumerate(keeps) if is_kept]
        return pool.take(rows[:n_candidates])


def _longer(lookups: Sequence[Lookup]) -> list[Lookup]:
    return [replace(one, n_candidates=one.n_candidates + SPARE) for one in lookups]
