"""Candidates from Qdrant Edge: Qdrant's own engine, in this process, over one folder."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

import numpy as np

from sift_core.candidates.qdrant_edge_folder import engine_failures, load_shard
from sift_core.candidates.qdrant_edge_probes import scores_are_distances
from sift_core.candidates.qdrant_edge_sampling import sample_shard
from sift_core.candidates.qdrant_edge_writing import WritableShard
from sift_core.candidates.query_checks import (
    check_fetch_arguments,
    check_is_batch,
    check_ranking,
    near_and_opposite,
    with_opposite,
)
from sift_core.candidates.sampling import check_sample_arguments
from sift_core.errors import InvalidInputError, MissingDependencyError
from sift_core.types import CandidatePool, Document, DocumentSample, FloatArray, Query

try:
    import qdrant_edge as edge
except ImportError as error:
    raise MissingDependencyError("qdrant-edge-py", extra="qdrant-edge") from error

Prefetch: TypeAlias = Callable[[Query, int], "edge.Prefetch | Sequence[edge.Prefetch]"]
Fusion: TypeAlias = "edge.Fusion | edge.Formula"

_LARGEST_LIMIT = 2**32  # the engine counts in 64 bits; no shard holds as many points


class EdgeSource:
    """Nearest neighbours from a Qdrant Edge shard, with vectors and payload.

    Qdrant Edge (`qdrant-edge-py`) is Qdrant's engine without a server. It is beta: tested
    here with version 0.9.0, and a later one may not open its folders. One source of one
    process at a time can have a folder open, and not across a fork.

    Safe for any number of threads, also while others write: a search sees each point as it
    was or as it is. But the engine holds Python's global lock while it works, so threads do
    not make searches faster, and nothing else runs meanwhile: some milliseconds a search, a
    minute in `complete` for 100,000 documents. Do that in a process without an event loop.
    Writers get their turn where readers pause.

    Written to by `index_documents`. What `add` and `remove` have done survives the death of
    the process, since the engine logs each call before it applies it (unless a shard of
    one's own has `wal_enabled=False`), and a power failure from the next `complete` or
    `close` on, or 10,000 documents later. Points that others have written are left alone.
    Floats in metadata may come back changed in their last digit.

    Args:
        shard: An open shard of one's own making; None where there is none yet and
            `prepare` is to create one in `folder`, for cosine similarity. `EdgeSource.open`
            finds out which.
        folder: Where it lies. Without it, the embedder's name is not kept.
        vector_name: Which of the dense vectors to search; "" for the unnamed one. Other
            vectors, sparse ones and multivectors may stand beside it.
        text_key: Payload key of the chunk's text; dots lead into nested objects.
        embedder_name: Model behind the vectors; queries made by another are refused. By
            default what `folder` says, which has the file sift.json for it.
        include_opposite: Whether half of the candidates are those nearest to the opposite
            of the query: what is negatively similar informs as well. Cosine and dot alone.
        search_params: The engine's own. After `complete`, shards above some 10 MB of vectors
            are searched approximately: `qdrant_edge.SearchParams(hnsw_ef=…)` says how
            thoroughly, `exact=True` turns that off.
        score_threshold: Leaves out what scores worse, in the shard's metric or, with
            `fusion`, in fused scores.
        prefetch: Called with the query and the number of candidates; returns the engine's
            prefetches, for instance one over sparse vectors. What they find is ranked by the
            dense vectors, or by `fusion`.
        fusion: What ranks that instead, for instance `qdrant_edge.Fusion.Rrf(k=2)`. The
            order is then the fused one, and its scores are the pool's `relevance`.

    Raises:
        CandidateSourceError: If `folder` cannot be read.
        InvalidInputError: If `folder` names another embedder; if there is neither `shard`
            nor `folder`; if `fusion` comes without `prefetch`, or either with
            `include_opposite`.
    """

    def __init__(
        self,
        shard: edge.EdgeShard | None,
        *,
        folder: str | os.PathLike[str] | None = None,
        vector_name: str = "",
        text_key: str = "text",
        embedder_name: str | None = None,
        include_opposite: bool = False,
        search_params: edge.SearchParams | None = None,
        score_threshold: float | None = None,
        prefetch: Prefetch | None = None,
        fusion: Fusion | None = None,
    ) -> None:
        if not isinstance(shard, edge.EdgeShard | None) or (shard is None and folder is None):
            raise InvalidInputError(
                f"`shard` must be an open qdrant_edge.EdgeShard, got {type(shard).__name__}; "
                f"EdgeSource.open opens a folder"
            )
        check_ranking(prefetch=prefetch, fusion=fusion, include_opposite=include_opposite)
        self._store = WritableShard(
            shard,
            None if folder is None else Path(folder),
            embedder_name=embedder_name,
            vector_name=vector_name,
            text_key=text_key,
        )
        self._vector_name = vector_name
        self._include_opposite = include_opposite
        self._search_params = search_params
        self._score_threshold = score_threshold
        self._prefetch = prefetch
        self._fusion = fusion
        self._has_opposites = False  # looked up once

    @classmethod
    def open(cls, folder: str | os.PathLike[str], **options: Any) -> EdgeSource:
        """Return a source over a folder, which may be empty or not there yet.

        Close it, or use it in a `with` block: until then nothing else can open the folder.
        Takes .2 s for 100,000 documents, also after a kill.

        Args:
            folder: Where the shard is, or where `prepare` is to create it.
            options: As for the class, from `vector_name` on.

        Raises:
            CandidateSourceError: If it is open elsewhere, unreadable or damaged.
            InvalidInputError: If the folder holds something else, or as for the class.
        """
        path = Path(folder)
        shard = load_shard(path)
        try:
            return cls(shard, folder=path, **options)
        except BaseException:
            if shard is not None:
                shard.close()
            raise

    @property
    def embedder_name(self) -> str | None:
        """Name of the model behind the vectors; None where it is not known."""
        return self._store.embedder_name

    def fetch(
        self, query: Query, n_candidates: int, *, filter: edge.Filter | None = None
    ) -> CandidatePool:
        """Return the shard's nearest documents, nearest first by its own metric.

        `similarities` are cosines, whatever the metric. With `fusion` the order is the
        fused one.

        Args:
            query: What to look for.
            n_candidates: How many at most, >= 1.
            filter: A `qdrant_edge.Filter` over the payload; holds for prefetches too.

        Raises:
            CandidateSourceError: If the engine fails, or a point lacks its text.
            InvalidInputError: If query and shard do not fit together.
        """
        return self.fetch_batch([query], n_candidates, filter=filter)[0]

    async def afetch(
        self, query: Query, n_candidates: int, *, filter: edge.Filter | None = None
    ) -> CandidatePool:
        """Return what `fetch` returns; see the class for what the event loop notices of it."""
        return await asyncio.to_thread(self.fetch, query, n_candidates, filter=filter)

    def fetch_batch(
        self, queries: Sequence[Query], n_candidates: int, *, filter: edge.Filter | None = None
    ) -> list[CandidatePool]:
        """Return what `fetch` returns for each query, asked of the engine at once."""
        requests = self._requests(queries, n_candidates, filter)
        if not requests:
            return []
        shard = self._store.shard
        if shard is None:
            raise self._emptiness()
        with engine_failures("search", self._store.place, lambda: self._misfit(shard, queries)):
            found = shard.query_batch(edge.QueryBatchRequest(requests))
        if self._include_opposite:
            self._check_metric(shard, queries[0], found[0])
            pairs = zip(found[::2], found[1::2], strict=True)
            found = [with_opposite(near, far, n_candidates) for near, far in pairs]
        is_restricted = filter is not None or self._score_threshold is not None or self._prefetch
        if not is_restricted and not all(found):
            raise self._emptiness()
        return [
            self._store.reader.pool(query, points, scores_are_relevance=self._fusion is not None)
            for query, points in zip(queries, found, strict=True)
        ]

    async def afetch_batch(
        self, queries: Sequence[Query], n_candidates: int, *, filter: edge.Filter | None = None
    ) -> list[CandidatePool]:
        """Return what `fetch_batch` returns; see the class for what the event loop notices."""
        return await asyncio.to_thread(self.fetch_batch, queries, n_candidates, filter=filter)

    def sample(self, n_documents: int, generator: np.random.Generator) -> DocumentSample:
        """Return up to `n_documents` random points, all in random order where there are fewer.

        Lists all ids, 1 s for 100,000, and reads the drawn points.

        Args:
            n_documents: >= 1.
            generator: What to draw with.

        Raises:
            CandidateSourceError: If the engine fails, a point lacks its vector or text, or the
                vector is not finite.
            InvalidInputError: If there is no point, or an argument cannot be used.
        """
        n_documents = check_sample_arguments(n_documents, generator)
        return sample_shard(self._store, n_documents, generator)

    def prepare(self, *, embedder_name: str, dimension: int) -> None:
        """Create the shard, or check that it suits an embedder; record the embedder's name.

        Raises:
            CandidateSourceError: If the engine or the disk fails.
            InvalidInputError: If the shard has no such dense vector, or holds vectors of
                another dimension or embedder; if the name can be kept nowhere.
        """
        self._store.prepare(embedder_name=embedder_name, dimension=dimension)

    def content_ids(self) -> set[str]:
        """Return the ids of what `add` has stored: 1 s for 100,000."""
        return self._store.content_ids()

    def add(
        self, content_ids: Sequence[str], documents: Sequence[Document], embeddings: FloatArray
    ) -> None:
        """Store documents with embeddings (n, d); equal ids are replaced.

        Raises:
            CandidateSourceError: If the engine fails; all, some or none may be stored.
            InvalidInputError: If the shard is not prepared, a content id is no UUID, rows do
                not fit, an embedding's length is outside 4e-4 to 1e18, or metadata would not
                come back: other than JSON, whole numbers beyond 64 bits, more than 64 levels.
        """
        self._store.add(content_ids, documents, embeddings)

    def remove(self, content_ids: Sequence[str]) -> None:
        """Delete documents; ids that are not there are ignored."""
        self._store.remove(content_ids)

    def complete(self) -> None:
        """Build the search graph of a large shard, drop what was deleted, flush.

        Takes about a minute of two cores for 100,000 documents of 384 dimensions, during which
        no other Python thread runs. Without it searches are exact, and take some five times
        as long at that size.
        """
        self._store.complete()

    def close(self) -> None:
        """Flush, and give the folder back; a second call does nothing."""
        self._store.close()

    def __enter__(self) -> EdgeSource:
        """Return the source itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

    def _requests(
        self, queries: Sequence[Query], n_candidates: int, condition: edge.Filter | None
    ) -> list[edge.QueryRequest]:
        """Return what to ask: one request a query, or two with the opposites."""
        check_is_batch(queries)
        if not isinstance(condition, edge.Filter | None):
            raise InvalidInputError(
                f"`filter` must be a qdrant_edge.Filter, got {type(condition).__module__}."
                f"{type(condition).__name__}; each kind of store has its own kind of filter"
            )
        requests = []
        for query in queries:
            n = check_fetch_arguments(
                query,
                n_candidates,
                dimension=None,
                embedder_name=self.embedder_name,
            )
            if self._include_opposite:
                near, far = near_and_opposite(n)
                requests.append(self._request(query, query.embedding, near, condition))
                requests.append(self._request(query, -query.embedding, far, condition))
            else:
                requests.append(self._request(query, query.embedding, n, condition))
        return requests

    def _request(
        self, query: Query, direction: FloatArray, n: int, condition: edge.Filter | None
    ) -> edge.QueryRequest:
        prefetches = [] if self._prefetch is None else self._prefetch(query, n)
        if isinstance(prefetches, edge.Prefetch):
            prefetches = [prefetches]
        ranked_by = edge.Query.Nearest(_in_range(direction).tolist(), self._vector_name)
        try:
            return edge.QueryRequest(
                limit=min(n, _LARGEST_LIMIT),
                query=ranked_by if self._fusion is None else self._fusion,
                prefetches=list(prefetches),
                with_vector=[self._vector_name],
                with_payload=True,
                filter=condition,
                score_threshold=self._score_threshold,
                params=self._search_params,
            )
        except TypeError as error:
            raise InvalidInputError(
                f"`search_params`, `fusion` and what `prefetch` returns must be qdrant_edge's own "
                f"objects: {str(error).splitlines()[0]}"
            ) from error

    def _misfit(self, shard: edge.EdgeShard, queries: Sequence[Query]) -> str | None:
        """Return why the shard cannot search for one of the vectors, None if it can."""
        for dimension in {len(query.embedding): None for query in queries}:
            reason = self._store.misfit(shard, dimension)
            if reason is not None:
                return reason
        return None

    def _check_metric(self, shard: edge.EdgeShard, query: Query, hits: Sequence[Any]) -> None:
        """Refuse a shard whose scores are distances."""
        if self._has_opposites or not hits:
            return
        with engine_failures("search", self._store.place):
            is_distance = scores_are_distances(
                shard, self._vector_name, _in_range(query.embedding), hits[0].id
            )
        if is_distance:
            raise InvalidInputError(
                f"`include_opposite` needs a shard by cosine or dot product, {self._store.place} "
                f"measures distances; leave it out"
            )
        self._has_opposites = True

    def _emptiness(self) -> InvalidInputError:
        return InvalidInputError(
            f"there are no documents to fetch from in {self._store.place} (vector name "
            f"{self._vector_name!r}); add some first"
        )


def _in_range(direction: FloatArray) -> FloatArray:
    """Return a vector (d,) as float32, scaled to 1 where float32 could not hold its products."""
    vector = direction.astype(np.float64)
    largest = float(np.max(np.abs(vector)))
    if largest > 1e15 or 0 < largest < 1e-15:
        vector = vector / largest
    narrowed: FloatArray = vector.astype(np.float32)
    return narrowed
