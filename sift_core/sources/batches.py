"""What a source gets for its `fetch_batch`: the three other calls of a `BatchCandidateSource`."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from sift_core.types import CandidatePool, Query


class BatchFetching(ABC):
    """Fetches one query as a batch of one, and awaits in a worker thread."""

    @abstractmethod
    def fetch_batch(
        self, queries: Sequence[Query], n_candidates: int, *, filter: Any = None
    ) -> list[CandidatePool]:
        """Return the nearest documents of each query."""

    def fetch(self, query: Query, n_candidates: int, *, filter: Any = None) -> CandidatePool:
        """Return the nearest documents of one query, as `fetch_batch` does, which see."""
        return self.fetch_batch([query], n_candidates, filter=filter)[0]

    async def afetch(self, query: Query, n_candidates: int, *, filter: Any = None) -> CandidatePool:
        """Return what `fetch` returns, without blocking the event loop."""
        return (await self.afetch_batch([query], n_candidates, filter=filter))[0]

    async def afetch_batch(
        self, queries: Sequence[Query], n_candidates: int, *, filter: Any = None
    ) -> list[CandidatePool]:
        """Return what `fetch_batch` returns, from a worker thread."""
        return await asyncio.to_thread(self.fetch_batch, queries, n_candidates, filter=filter)
