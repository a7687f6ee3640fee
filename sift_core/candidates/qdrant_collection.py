"""Candidates from a Qdrant collection: in memory, in a folder or on a server alike."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

from sift_core.candidates.deadline import Deadline, awithin, within
from sift_core.candidates.qdrant_clients import is_local, timeout_s
from sift_core.candidates.qdrant_failures import STORE_ERRORS, failure
from sift_core.candidates.qdrant_points import PointReader
from sift_core.candidates.qdrant_writing import CollectionWriter, dense_sizes, dense_vectors
from sift_core.candidates.query_checks import (
    as_float32,
    check_fetch_arguments,
    near_and_opposite,
    with_opposite,
)
from sift_core.errors import (
    CandidateSourceError,
    InvalidInputError,
    MissingDependencyError,
    SiftError,
)
from sift_core.types import CandidatePool, Document, FloatArray, Query

try:
    from pydantic import ValidationError
    from qdrant_client import AsyncQdrantClient, QdrantClient, models
except ImportError as error:
    raise MissingDependencyError("qdrant-client", extra="qdrant") from error

Prefetch: TypeAlias = Callable[[Query, int], "models.Prefetch | Sequence[models.Prefetch]"]
Fusion: TypeAlias = "models.FusionQuery | models.RrfQuery | models.FormulaQuery"

# Qdrant ranks quantised vectors by the originals again if asked; for others this says nothing.
RESCORE = models.SearchParams(quantization=models.QuantizationSearchParams(rescore=True))


class QdrantSource:
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
        include_opposite: Whether half of the candidates are those nearest to the opposite
            of the query: what is negatively similar informs as well. Cosine and dot alone.
        search_params: Qdrant's own, for instance `hnsw_ef` or `exact`. By default quantised
            vectors are ranked again by the originals (local clients know none).
        score_threshold: Leaves out what scores worse, in the collection's metric or, with
            `fusion`, in fused scores.
        prefetch: Called with the query and the number of candidates; returns Qdrant's
            prefetches, for instance one over sparse vectors. What they find is ranked by
            the dense vectors, or by `fusion`.
        fusion: Qdrant's query that ranks what `prefetch` finds, for instance
            `models.FusionQuery(fusion=models.Fusion.RRF)`. The order is then the fused one,
            and the fused scores are the pool's `relevance`.

    Raises:
        InvalidInputError: If `fusion` comes without `prefetch`, or either with
            `include_opposite`.
    """

    def __init__(
        self,
        client: QdrantClient | AsyncQdrantClient,
        collection: str,
        *,
        vector_name: str = "",
        text_key: str = "text",
        embedder_name: str | None = None,
        include_opposite: bool = False,
        search_params: models.SearchParams | None = None,
        score_threshold: float | None = None,
        prefetch: Prefetch | None = None,
        fusion: Fusion | None = None,
    ) -> None:
        if fusion is not None and prefetch is None:
            raise InvalidInputError("`fusion` ranks what `prefetch` finds; pass that too")
        if include_opposite and prefetch is not None:
            raise InvalidInputError(
                "`include_opposite` and `prefetch` do not go together; leave one out"
            )
        self._client = client
        self._collection = collection
        self._vector_name = vector_name
        self._reader = PointReader(
            place=f"Qdrant collection {collection!r}", vector_name=vector_name, text_key=text_key
        )
        self.embedder_name = embedder_name
        self._include_opposite = include_opposite
        if search_params is None and fusion is None and not is_local(client):
            search_params = RESCORE
        self._search_params = search_params
        self._score_threshold = score_threshold
        self._prefetch = prefetch
        self._fusion = fusion
        self._has_opposites = False  # looked up once

    def fetch(
        self,
        query: Query,
        n_candidates: int,
        *,
        filter: models.Filter | None = None,
    ) -> CandidatePool:
        """Return the collection's nearest documents, nearest first by its own metric.

        `similarities` are cosines, whatever the metric. With `fusion` the order is the
        fused one.

        Args:
            query: What to look for.
            n_candidates: How many at most, >= 1.
            filter: A Qdrant filter over the payload; holds for prefetches too.

        Raises:
            CandidateSourceError: If Qdrant cannot be reached, is busy, has no such
                collection or vector, or a point lacks its vector or text.
            InvalidInputError: If query and collection do not fit together.
        """
        return self.fetch_batch([query], n_candidates, filter=filter)[0]

    async def afetch(
        self,
        query: Query,
        n_candidates: int,
        *,
        filter: models.Filter | None = None,
    ) -> CandidatePool:
        """Return what `fetch` returns: natively with an `AsyncQdrantClient`, else in a thread."""
        return (await self.afetch_batch([query], n_candidates, filter=filter))[0]

    def fetch_batch(
        self,
        queries: Sequence[Query],
        n_candidates: int,
        *,
        filter: models.Filter | None = None,
    ) -> list[CandidatePool]:
        """Return what `fetch` returns for each query, in one trip."""
        requests = self._requests(queries, n_candidates, filter)
        if not requests:
            return []
        client = self._blocking_client()
        read = partial(
            self._pools,
            queries,
            requests,
            n_candidates=n_candidates,
            is_filtered=filter is not None,
        )
        deadline = self._deadline()
        try:
            # Read where it arrived: handing it to another core first costs a fifth of the time.
            return within(deadline.left_s, lambda: read(self._ask(client, requests)))
        except SiftError:
            raise
        except STORE_ERRORS as error:
            advice = None
            if failure(error).is_refusal:
                with suppress(*STORE_ERRORS):  # the first error says more than one about the advice
                    advice = _advice(within(deadline.left_s, lambda: self._information(client)))
            raise self._refusal(error, queries[0], advice) from error

    async def afetch_batch(
        self,
        queries: Sequence[Query],
        n_candidates: int,
        *,
        filter: models.Filter | None = None,
    ) -> list[CandidatePool]:
        """Return what `fetch_batch` returns: natively with an `AsyncQdrantClient`."""
        client = self._client
        if not isinstance(client, AsyncQdrantClient):
            return await asyncio.to_thread(self.fetch_batch, queries, n_candidates, filter=filter)
        requests = self._requests(queries, n_candidates, filter)
        if not requests:
            return []
        deadline = self._deadline()
        try:
            responses = await awithin(deadline.left_s, self._ask_awaiting(client, requests))
        except InvalidInputError:
            raise
        except STORE_ERRORS as error:
            advice = None
            if failure(error).is_refusal:
                with suppress(*STORE_ERRORS):
                    advice = _advice(await awithin(deadline.left_s, self._information(client)))
            raise self._refusal(error, queries[0], advice) from error
        return self._pools(
            queries, requests, responses, n_candidates=n_candidates, is_filtered=filter is not None
        )

    def prepare(self, *, embedder_name: str, dimension: int) -> None:
        """Create the collection (cosine), or check that it suits an embedder.

        Raises:
            CandidateSourceError: If Qdrant fails.
            InvalidInputError: If the collection has no such dense vector, or holds vectors
                of another dimension or embedder.
        """
        self._writer().prepare(embedder_name=embedder_name, dimension=dimension)

    def content_ids(self) -> set[str]:
        """Return the ids of what `index_documents` has stored, read in pages of 10,000."""
        return self._writer().content_ids()

    def add(
        self, content_ids: Sequence[str], documents: Sequence[Document], embeddings: FloatArray
    ) -> None:
        """Store documents with embeddings (n, d); returns when Qdrant has applied it all."""
        self._writer().add(content_ids, documents, embeddings)

    def remove(self, content_ids: Sequence[str]) -> None:
        """Delete points; returns when Qdrant has applied it."""
        self._writer().remove(content_ids)

    def complete(self) -> None:
        """Do nothing: a server builds its graphs by itself, a local client has none."""

    def _writer(self) -> CollectionWriter:
        return CollectionWriter(
            client=self._blocking_client(),
            collection=self._collection,
            reader=self._reader,
            timeout_s=timeout_s(self._client),
        )

    def _blocking_client(self) -> QdrantClient:
        if isinstance(self._client, AsyncQdrantClient):
            raise InvalidInputError(
                "an AsyncQdrantClient serves `afetch` and `afetch_batch` only; await these, or "
                "pass a QdrantClient"
            )
        return self._client

    def _requests(
        self, queries: Sequence[Query], n_candidates: int, condition: models.Filter | None
    ) -> list[models.QueryRequest]:
        """Return what to ask: one request a query, or two with the opposites."""
        if not isinstance(condition, models.Filter | None):
            raise InvalidInputError(
                f"`filter` must be a qdrant_client.models.Filter, got "
                f"{type(condition).__name__}; each kind of store has its own kind of filter"
            )
        requests = []
        for query in queries:
            n = check_fetch_arguments(
                query,
                n_candidates,
                dimension=len(query.embedding),  # the store says itself when they differ
                embedder_name=self.embedder_name,
            )
            if self._include_opposite:
                near, far = near_and_opposite(n)
                requests.append(self._request(query, query.embedding, near, condition))
                # Qdrant takes no limit of 0; `with_opposite` leaves out what is too much.
                requests.append(self._request(query, -query.embedding, max(1, far), condition))
            else:
                requests.append(self._request(query, query.embedding, n, condition))
        return requests

    def _request(
        self, query: Query, direction: FloatArray, n: int, condition: models.Filter | None
    ) -> models.QueryRequest:
        nearest = models.NearestQuery(nearest=as_float32(direction).tolist())
        prefetch = None if self._prefetch is None else self._prefetch(query, n)
        try:
            return models.QueryRequest(
                query=nearest if self._fusion is None else self._fusion,
                prefetch=list(prefetch) if isinstance(prefetch, Sequence) else prefetch,
                using=self._vector_name or None if self._fusion is None else None,
                filter=condition,
                params=self._search_params,
                score_threshold=self._score_threshold,
                limit=n,
                with_payload=True,
                with_vector=[self._vector_name] if self._vector_name else True,
            )
        except ValidationError as error:
            first = error.errors()[0]
            raise InvalidInputError(
                f"`search_params`, `score_threshold`, `fusion` and what `prefetch` returns must be "
                f"as qdrant_client.models has them: {first['msg']} at {first['loc']}"
            ) from error

    def _ask(self, client: QdrantClient, requests: list[models.QueryRequest]) -> Any:
        """Return the client's answer to all requests."""
        if self._include_opposite and not self._has_opposites:
            self._check_metric(self._information(client))
        return self._send(client, requests)

    async def _ask_awaiting(
        self, client: AsyncQdrantClient, requests: list[models.QueryRequest]
    ) -> Any:
        """Return what `_ask` returns."""
        if self._include_opposite and not self._has_opposites:
            self._check_metric(await self._information(client))
        return await self._send(client, requests)

    def _information(self, client: Any) -> Any:
        """Return what the collection is like, or what to await for it."""
        return client.get_collection(self._collection)

    def _deadline(self) -> Deadline:
        """Return when a fetch that begins now is given up."""
        return Deadline(timeout_s(self._client))

    def _send(self, client: Any, requests: list[models.QueryRequest]) -> Any:
        """Return the client's answer, or what to await for it: both have the same methods."""
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

    def _pools(
        self,
        queries: Sequence[Query],
        requests: Sequence[models.QueryRequest],
        responses: Any,
        *,
        n_candidates: int,
        is_filtered: bool,
    ) -> list[CandidatePool]:
        answers = [responses] if len(requests) == 1 else responses or []
        if len(answers) != len(requests) or None in answers:
            raise CandidateSourceError(
                f"{self._reader.place} gave {len(answers)} answers to {len(requests)} queries; "
                f"do the versions of server and client fit?"
            )
        found = [answer.points for answer in answers]
        if self._include_opposite:
            found = [
                with_opposite(found[i], found[i + 1], n_candidates) for i in range(0, len(found), 2)
            ]
        may_be_empty = is_filtered or self._score_threshold is not None or self._prefetch
        if not may_be_empty and not all(found):
            raise InvalidInputError(
                f"there are no documents to fetch from in {self._collection!r} (vector name "
                f"{self._vector_name!r}); add some first"
            )
        return [
            self._reader.pool(query, points, scores_are_relevance=self._fusion is not None)
            for query, points in zip(queries, found, strict=True)
        ]

    def _check_metric(self, information: models.CollectionInfo) -> None:
        vectors = dense_vectors(information).get(self._vector_name)
        if vectors is not None and vectors.distance not in (
            models.Distance.COSINE,
            models.Distance.DOT,
        ):
            raise InvalidInputError(
                f"`include_opposite` needs a collection by cosine or dot product, "
                f"{self._collection!r} has {vectors.distance.value}; leave it out"
            )
        self._has_opposites = True

    def _refusal(
        self, error: Exception, query: Query, advice: str | None = None
    ) -> CandidateSourceError:
        place = (
            f"collection {self._collection!r} with a vector of {len(query.embedding)} numbers "
            f"(vector name {self._vector_name!r})"
        )
        return failure(error).as_error("search", place, advice)


def _advice(information: models.CollectionInfo) -> str:
    sizes = ", ".join(f"{name!r} of {n}" for name, n in dense_sizes(information).items())
    return (
        f"its dense vectors are {sizes or 'none'} (dimensions): is `vector_name` one of them, is "
        f"the filter right, and were both embedded by one model?"
    )
