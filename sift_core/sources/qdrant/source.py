"""Candidates from a Qdrant collection: in memory, in a folder or on a server alike."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from qdrant_client import AsyncQdrantClient, QdrantClient, models

from sift_core.checks import check_text
from sift_core.errors import CandidateSourceError, InvalidInputError, SiftError
from sift_core.pacing import paced
from sift_core.sources.contract import BatchFetching, check_sample_arguments
from sift_core.sources.qdrant.calls import (
    STORE_ERRORS,
    Deadline,
    awithin,
    failure,
    folder_of,
    is_local,
    place_of,
    timeout_s,
    within,
)
from sift_core.sources.qdrant.collection import Collection, vector_advice
from sift_core.sources.qdrant.grpc_search import hits_of, prefers_grpc, send
from sift_core.sources.qdrant.points import PointReader
from sift_core.sources.qdrant.requests import Fusion, Prefetch, RequestMaker, rescored
from sift_core.types import CandidatePool, Document, DocumentSample, FloatArray, Query


class QdrantSource(BatchFetching):
    """Nearest neighbours from a Qdrant collection, vectors and payload in one trip.

    Safe for as many threads as the client is: remote clients are, local ones for reading.
    Timeouts and retries are the client's own (`QdrantClient(timeout=…)`; for retries of
    connections `transport=httpx.HTTPTransport(retries=…)`). Its `timeout` is also the longest
    that a whole fetch takes, a minute where it has none: the client alone would wait for
    ever for a server that sends a byte now and then.

    Written to by `index_documents`; a collection that is not there is then created, and
    points that others have written are left alone.

    Args:
        client: A `QdrantClient` of any kind (REST, gRPC, folder, ":memory:"), or an
            `AsyncQdrantClient` for `afetch`.
        collection: Name of the collection, or an alias.
        vector_name: Which of the collection's dense vectors to search; "" for the unnamed
            one. Other vectors, sparse ones and multivectors may stand beside it.
        text_key: Payload key of the chunk's text; dots lead into nested objects.
        embedder_name: Model behind the vectors; queries made by another are refused.
        search_params: Qdrant's own, for instance `hnsw_ef` or `exact`. Quantised vectors are
            ranked again by the originals unless `quantization` in it says otherwise (local
            clients know none). Prefetches have parameters of their own.
        score_threshold: Leaves out what scores worse, in the collection's metric or, with
            `fusion`, in fused scores.
        prefetch: Called with the query and the number of candidates; returns Qdrant's
            prefetches, for instance one over sparse vectors. What they find is ranked by
            the dense vectors, or by `fusion`.
        fusion: What ranks what `prefetch` finds, for instance `models.Fusion.RRF` or another
            query of Qdrant's. The order is then the fused one, and the fused scores are the
            pool's `relevance`.

    Raises:
        InvalidInputError: If `fusion` comes without `prefetch`, or an argument is of another kind.
    """

    def __init__(
        self,
        client: QdrantClient | AsyncQdrantClient,
        collection: str,
        *,
        vector_name: str = "",
        text_key: str = "text",
        embedder_name: str | None = None,
        search_params: models.SearchParams | None = None,
        score_threshold: float | None = None,
        prefetch: Prefetch | None = None,
        fusion: Fusion | None = None,
    ) -> None:
        if not isinstance(client, QdrantClient | AsyncQdrantClient):
            raise InvalidInputError(
                f"`client` must be a QdrantClient or an AsyncQdrantClient, got "
                f"{type(client).__name__}; QdrantClient(url=…) makes one"
            )
        check_text("text_key", text_key)
        self._client = client
        self._collection = collection
        self._vector_name = vector_name
        self._reader = PointReader(
            place=f"Qdrant {place_of(client, collection)}",
            vector_name=vector_name,
            text_key=text_key,
            checks_contents=folder_of(client) is not None,
        )
        self.embedder_name = embedder_name
        # Prefetches may hold texts, which the client's own search embeds.
        self._reads_bytes = prefers_grpc(client) and prefetch is None
        self._requests = RequestMaker(
            vector_name=vector_name,
            search_params=search_params if is_local(client) else rescored(search_params),
            score_threshold=score_threshold,
            prefetch=prefetch,
            fusion=fusion,
        )

    def fetch_batch(
        self,
        queries: Sequence[Query],
        n_candidates: int,
        *,
        filter: models.Filter | None = None,
    ) -> list[CandidatePool]:
        """Return the collection's nearest documents of each query, in one trip.

        Nearest first by the collection's own metric; with `fusion` the order is the fused one.
        `similarities` are cosines in any case.

        Args:
            queries: What to look for.
            n_candidates: How many at most for each, >= 1.
            filter: A Qdrant filter over the payload; holds for prefetches too.

        Raises:
            CandidateSourceError: If Qdrant cannot be reached, is busy, has no such
                collection or vector, the vector has another dimension, or a point lacks its
                vector or text.
            InvalidInputError: If an argument cannot be used, a query is another embedder's,
                or the collection is empty.
        """
        requests = self._requests.make(
            queries, n_candidates, filter, embedder_name=self.embedder_name
        )
        if not requests:
            return []
        client = self._blocking_client()
        deadline = Deadline(timeout_s(client))

        def ask() -> list[CandidatePool]:
            # Read where it arrived: handing it to another core first costs a fifth of the time.
            found = self._found(self._send(client, requests), len(queries))
            return self._pools(queries, found, filter is not None)

        try:
            return within(deadline.left_s, ask)
        except SiftError:
            raise
        except STORE_ERRORS as error:
            found = None
            if failure(error, client).is_refusal:
                with suppress(*STORE_ERRORS):  # the first error says more than one about the advice
                    found = within(deadline.left_s, lambda: client.get_collection(self._collection))
            raise self._refusal(error, queries[0], found) from error

    async def afetch_batch(
        self,
        queries: Sequence[Query],
        n_candidates: int,
        *,
        filter: models.Filter | None = None,
    ) -> list[CandidatePool]:
        """Return what `fetch_batch` returns: natively with an `AsyncQdrantClient`.

        At a pace (`sift_core.paced`), so that many answers do not block the event loop.
        """
        client = self._client
        if not isinstance(client, AsyncQdrantClient):
            return await super().afetch_batch(queries, n_candidates, filter=filter)
        requests = self._requests.make(
            queries, n_candidates, filter, embedder_name=self.embedder_name
        )
        if not requests:
            return []
        deadline = Deadline(timeout_s(client))
        async with paced(n_candidates * len(requests), len(queries[0].vector)):
            try:
                answer = await awithin(deadline.left_s, self._send(client, requests))
                points = self._found(answer, len(queries))
            except STORE_ERRORS as error:
                found = None
                if failure(error, client).is_refusal:
                    with suppress(*STORE_ERRORS):
                        asked = client.get_collection(self._collection)
                        found = await awithin(deadline.left_s, asked)
                raise self._refusal(error, queries[0], found) from error
        return self._pools(queries, points, filter is not None)

    def sample(self, n_documents: int, generator: np.random.Generator) -> DocumentSample:
        """Return up to `n_documents` random points, all in random order where there are fewer.

        Lists all ids, 10,000 a request, and reads the drawn points. Beyond a million points the
        server draws (Qdrant 1.11 or later), with a seed of its own.

        Args:
            n_documents: >= 1.
            generator: What to draw with.

        Raises:
            CandidateSourceError: If Qdrant fails, or a point lacks its text or a finite vector.
            InvalidInputError: If the collection is empty or has no such vector, an argument cannot
                be used, or the client is an `AsyncQdrantClient`.
        """
        n_documents = check_sample_arguments(n_documents, generator)
        return self._blocking().sample(n_documents, generator)

    def prepare(self, *, embedder_name: str, dimension: int) -> None:
        """Create the collection (cosine), or check that it suits an embedder.

        Raises:
            CandidateSourceError: If Qdrant fails.
            InvalidInputError: If the collection has no such dense vector, or holds vectors
                of another dimension or embedder.
        """
        self._blocking().prepare(embedder_name=embedder_name, dimension=dimension)
        self._adopt(embedder_name)

    def content_ids(self) -> set[str]:
        """Return the ids of what `index_documents` has stored, read in pages of 10,000.

        Also takes over the embedder's name where the collection has it and this source not.

        Raises:
            CandidateSourceError: If Qdrant fails.
            InvalidInputError: If the collection names another embedder than this source.
        """
        collection = self._blocking()
        self._adopt(collection.embedder_name())
        return collection.content_ids()

    def add(
        self, content_ids: Sequence[str], documents: Sequence[Document], embeddings: FloatArray
    ) -> None:
        """Store documents with embeddings (n, d); returns when Qdrant has applied it all."""
        self._blocking().add(content_ids, documents, embeddings)

    def remove(self, content_ids: Sequence[str]) -> None:
        """Delete points; returns when Qdrant has applied it."""
        self._blocking().remove(content_ids)

    def flush(self) -> None:
        """Do nothing: each call is durable when it returns."""

    def complete(self) -> None:
        """Do nothing: a server builds its graphs by itself, a local client has none."""

    def _adopt(self, recorded: str | None) -> None:
        if recorded is None:
            return
        if self.embedder_name not in (None, recorded):
            raise InvalidInputError(
                f"collection {self._collection!r} was embedded by {recorded!r}, this source says "
                f"{self.embedder_name!r}; take that model, or another collection"
            )
        self.embedder_name = recorded

    def _blocking(self) -> Collection:
        client = self._blocking_client()
        return Collection(client=client, name=self._collection, reader=self._reader)

    def _blocking_client(self) -> QdrantClient:
        if isinstance(self._client, AsyncQdrantClient):
            raise InvalidInputError(
                "an AsyncQdrantClient serves `afetch` and `afetch_batch` only; await these, or "
                "pass a QdrantClient"
            )
        return self._client

    def _send(self, client: Any, requests: list[models.QueryRequest]) -> Any:
        """Return the client's answer, or what to await for it: both have the same methods."""
        if self._reads_bytes:
            return send(client, self._collection, requests)
        if len(requests) > 1:
            return client.query_batch_points(self._collection, requests=requests)
        (request,) = requests
        return client.query_points(
            self._collection,
            query=request.query,
            prefetch=request.prefetch,
            using=request.using,
            query_filter=request.filter,
            search_params=request.params,
            score_threshold=request.score_threshold,
            limit=request.limit,
            with_payload=request.with_payload,
            with_vectors=request.with_vector,
        )

    def _found(self, answer: Any, n_queries: int) -> list[Any]:
        """Return the points that an answer of the client has for each query."""
        if self._reads_bytes:
            return hits_of(answer)
        answers = [answer] if n_queries == 1 else answer or []
        return [each.points for each in answers if each is not None]

    def _pools(
        self, queries: Sequence[Query], found: Sequence[Any], is_filtered: bool
    ) -> list[CandidatePool]:
        if len(found) != len(queries):
            raise CandidateSourceError(
                f"{self._reader.place} gave {len(found)} answers to {len(queries)} queries; "
                f"do the versions of server and client fit?"
            )
        may_be_empty = is_filtered or self._requests.restricts
        if not may_be_empty and not all(found):
            raise InvalidInputError(
                f"there are no documents to fetch from in {self._collection!r} (vector name "
                f"{self._vector_name!r}); add some first"
            )
        return [
            self._reader.pool(query, points, scores_are_relevance=self._requests.fusion is not None)
            for query, points in zip(queries, found, strict=True)
        ]

    def _refusal(
        self, error: Exception, query: Query, found: models.CollectionInfo | None
    ) -> CandidateSourceError:
        """Return what to raise; with what the collection has, where that could be asked for."""
        place = (
            f"{place_of(self._client, self._collection)} with a vector of {len(query.vector)} "
            f"numbers (vector name {self._vector_name!r})"
        )
        advice = None if found is None else vector_advice(found)
        return failure(error, self._client).as_error("search", place, advice)
