"""Candidates from a Qdrant collection: in memory, in a folder or on a server alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from operator import methodcaller
from typing import Any

import numpy as np
from qdrant_client import AsyncQdrantClient, QdrantClient, models

from sift_core.checks import check_text, warn
from sift_core.errors import CandidateSourceError, InvalidInputError, MissingWordsWarning, SeenFacts
from sift_core.pacing import paced
from sift_core.protocols import Lookup
from sift_core.sources.contract import (
    LexicalFetching,
    check_lookups,
    check_sample_arguments,
    query_of,
    with_cosines,
)
from sift_core.sources.qdrant.calls import (
    STORE_ERRORS,
    Steps,
    arun,
    failure,
    folder_of,
    is_local,
    place_of,
    run,
)
from sift_core.sources.qdrant.collection import Collection, vector_advice
from sift_core.sources.qdrant.missing_keys import missing_keys_steps
from sift_core.sources.qdrant.points import PointReader
from sift_core.sources.qdrant.requests import (
    Fusion,
    Prefetch,
    RequestMaker,
    points_of,
    prefers_grpc,
    rescored,
    send,
    send_by_grpc,
)
from sift_core.sources.qdrant.words import mean_length, words_of_query
from sift_core.types import CandidatePool, Document, DocumentSample, FloatArray, Query


class QdrantSource(LexicalFetching):
    """Nearest neighbours from a Qdrant collection, vectors and payload in one trip.

    Safe for as many threads as the client is: remote clients are, local ones for reading.
    Timeouts and retries are the client's own (`QdrantClient(timeout=…)`; for retries of
    connections `transport=httpx.HTTPTransport(retries=…)`). By REST, `timeout` is the longest
    wait for each part of an answer. By gRPC it is the longest that a fetch takes; a client
    without one gets a minute, and 5 s with `prefetch` or `fusion`.

    Written to by `index_documents`; a collection that is not there is then created, and
    points that others have written are left alone. Collections that are created so keep the words
    of their documents, as a sparse vector "sift_words".

    Args:
        client: A `QdrantClient` of any kind (REST, gRPC, folder, ":memory:"), or an
            `AsyncQdrantClient` for `afetch`.
        collection: Name of the collection, or an alias.
        vector_name: Which of the collection's dense vectors to search; "" for the unnamed
            one. Other vectors, sparse ones and multivectors may stand beside it.
        text_key: Payload key of the chunk's text; dots lead into nested objects. Default: "text",
            else where LangChain, LlamaIndex and Haystack keep it, with the metadata beside it.
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

    Example:
        >>> from qdrant_client import QdrantClient
        >>> from sift_core.documents import index_documents
        >>> source = QdrantSource(QdrantClient(":memory:"), "ferry", embedder_name=embedder.name)
        >>> documents = [Document(document_id="timetable", text="The ferry sails at nine.")]
        >>> report = index_documents(source, documents, embedder, progress=False)
        >>> source.fetch(query, n_candidates=1).texts
        ('The ferry sails at nine.',)
    """

    def __init__(
        self,
        client: QdrantClient | AsyncQdrantClient,
        collection: str,
        *,
        vector_name: str = "",
        text_key: str | None = None,
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
        check_text("text_key", "" if text_key is None else text_key)
        self._client = client
        self._collection = collection
        self.collection_name: str = collection
        self._reader = PointReader(
            place=f"Qdrant {place_of(client, collection)}",
            vector_name=vector_name,
            text_key=text_key,
            checks_contents=folder_of(client) is not None,
        )
        self.embedder_name = embedder_name
        self._mean_length: float | None = None  # of words; None until the collection was looked at
        self._seen = SeenFacts()
        # Prefetches may hold texts, which the client's own search embeds.
        by_grpc = prefers_grpc(client) and prefetch is None
        self._send = send_by_grpc if by_grpc else send
        self._requests = RequestMaker(
            vector_name=vector_name,
            search_params=search_params if is_local(client) else rescored(search_params),
            score_threshold=score_threshold,
            prefetch=prefetch,
            fusion=fusion,
        )

    def fetch_batch(
        self, queries: Sequence[Query], n_candidates: int, *, filter: models.Filter | None = None
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
        return run(self.collection().client, self._fetched(queries, n_candidates, filter))

    async def afetch_batch(
        self, queries: Sequence[Query], n_candidates: int, *, filter: models.Filter | None = None
    ) -> list[CandidatePool]:
        """Return what `fetch_batch` returns: natively with an `AsyncQdrantClient`.

        At a pace (`sift_core.pacing`), so that many answers do not block the event loop.
        """
        client = self._client
        if not isinstance(client, AsyncQdrantClient):
            return await super().afetch_batch(queries, n_candidates, filter=filter)
        return await arun(client, self._fetched(queries, n_candidates, filter))

    def _fetched(
        self, queries: Sequence[Query], n_candidates: int, condition: models.Filter | None
    ) -> Steps[list[CandidatePool]]:
        requests = self._requests.make(
            queries, n_candidates, condition, embedder_name=self.embedder_name
        )
        if not requests:
            return []
        found = yield from self._searched(queries[0], requests)
        return self._pools(queries, found, condition is not None)

    def _searched(
        self, query: Query, requests: list[models.QueryRequest]
    ) -> Steps[list[Sequence[Any]]]:
        """Return the points that each request finds, all in one trip."""

        def ask(client: Any) -> list[Sequence[Any]]:
            return points_of(self._send(client, self._collection, requests))

        async def aask(client: Any) -> list[Sequence[Any]]:
            async with paced(sum(one.limit or 0 for one in requests), len(query.vector)):
                return points_of(await self._send(client, self._collection, requests))

        call = aask if isinstance(self._client, AsyncQdrantClient) else ask
        found: list[Sequence[Any]] = yield from self._answer(query, call)
        if len(found) != len(requests):
            raise CandidateSourceError(
                f"{self._reader.place} gave {len(found)} answers to {len(requests)} requests; do "
                f"the versions of server and client fit?"
            )
        yield from missing_keys_steps(self._collection, requests[0].filter, found)
        return found

    def _answer(self, query: Query, call: Callable[[Any], Any]) -> Steps[Any]:
        """Return what one call of the client returns; of a refusal, say what the collection has."""
        try:
            return (yield call)
        except STORE_ERRORS as error:
            failed, advice = failure(error, self._client), None
            if failed.is_refusal:
                with suppress(*STORE_ERRORS):  # the first error says more than one about the advice
                    found = yield methodcaller("get_collection", self._collection)
                    advice = vector_advice(found)
            place = (
                f"{place_of(self._client, self._collection)} with a vector of {len(query.vector)} "
                f"numbers (vector name {self._reader.vector_name!r})"
            )
            raise failed.as_error("search", place, advice) from error

    @property
    def has_words(self) -> bool:
        """Whether the collection keeps words as `prepare` creates it to; False with `prefetch`.

        Asks Qdrant once. An `AsyncQdrantClient` is asked by the first `alook_up`, and True stands
        until then.

        Raises:
            CandidateSourceError: If Qdrant fails, or has no such collection.
        """
        if self._requests.prefetch is not None:  # which may look for words in its own way
            return False
        if self._mean_length is None and isinstance(self._client, QdrantClient):
            self._mean_length = mean_length(self.collection().information())
        return self._mean_length != 0

    def look_up(
        self, query: Query, lookups: Sequence[Lookup], *, filter: models.Filter | None = None
    ) -> list[CandidatePool]:
        """Return one pool for each lookup, all in one trip.

        A vector finds what `fetch` finds. Words find documents by BM25, with a mean length that
        was assumed when the collection was created. A collection without words is said to be one
        by a `MissingWordsWarning`, once.

        Args:
            query: Whose cosine with each row is in `similarities`.
            lookups: Vectors and words.
            filter: A Qdrant filter over the payload.

        Raises:
            CandidateSourceError: As `fetch_batch`.
            InvalidInputError: As `fetch_batch`.
        """
        return run(self.collection().client, self._looked_up(query, lookups, filter))

    async def alook_up(
        self, query: Query, lookups: Sequence[Lookup], *, filter: models.Filter | None = None
    ) -> list[CandidatePool]:
        """Return what `look_up` returns: natively with an `AsyncQdrantClient`, in one trip."""
        client = self._client
        if not isinstance(client, AsyncQdrantClient):
            return await super().alook_up(query, lookups, filter=filter)
        return await arun(client, self._looked_up(query, lookups, filter))

    def _looked_up(
        self, query: Query, lookups: Sequence[Lookup], condition: models.Filter | None
    ) -> Steps[list[CandidatePool]]:
        check_lookups(query, lookups, dimension=None, embedder_name=self.embedder_name)
        if any(one.words is not None for one in lookups) and self._requests.prefetch is None:
            if self._mean_length is None:
                call = methodcaller("get_collection", self._collection)
                self._mean_length = mean_length((yield from self._answer(query, call)))
            message = (
                f"{place_of(self._client, self._collection)} keeps no words, so vectors alone "
                f"find documents; index them into a new collection (`sift index` makes one)"
            )
            if not self._mean_length and self._seen.add(message):
                warn(message, MissingWordsWarning)
        requests = {}  # by the lookups' positions; none for words that find nothing
        for i, one in enumerate(lookups):
            if one.words is None:
                (requests[i],) = self._requests.make(
                    [query_of(query, one)],
                    one.n_candidates,
                    condition,
                    embedder_name=self.embedder_name,
                )
            elif self.has_words and (words := words_of_query(one.words)) is not None:
                requests[i] = self._requests.make_for_words(words, one.n_candidates, condition)
        pools = [CandidatePool.empty(dimension=len(query.vector))] * len(lookups)
        if not requests:
            return pools
        found = yield from self._searched(query, list(requests.values()))
        for i, points in zip(requests, found, strict=True):
            if lookups[i].words is None:
                near = query_of(query, lookups[i])
                (pool,) = self._pools([near], [points], condition is not None)
                pools[i] = pool if near is query else with_cosines(query, pool)
            else:
                points = self._reader.with_text(points)
                pool = self._reader.pool(query, points)
                pools[i] = replace(pool, scores=[point.score for point in points])
        return pools

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
        return self.collection().sample(n_documents, generator)

    def prepare(self, *, embedder_name: str, dimension: int) -> None:
        """Create the collection (cosine, with words), or check that it suits an embedder.

        Raises:
            CandidateSourceError: If Qdrant fails.
            InvalidInputError: If the collection has no such dense vector, or holds vectors
                of another dimension or embedder.
        """
        self._mean_length = self.collection().prepare(
            embedder_name=embedder_name, dimension=dimension
        )
        self._adopt(embedder_name)

    def content_ids(self) -> set[str]:
        """Return the ids of what `index_documents` has stored, read in pages of 10,000.

        Also takes over the embedder's name where the collection has it and this source not.

        Raises:
            CandidateSourceError: If Qdrant fails.
            InvalidInputError: If the collection names another embedder than this source.
        """
        collection = self.collection()
        self._adopt(collection.embedder_name())
        return collection.content_ids()

    def add(
        self, content_ids: Sequence[str], documents: Sequence[Document], embeddings: FloatArray
    ) -> None:
        """Store documents with embeddings (n, d); returns when Qdrant has applied it all."""
        collection = self.collection()
        if self._mean_length is None:
            information = collection.information()
            collection.check_datatype(information)
            self._mean_length = mean_length(information)
        collection.add(content_ids, documents, embeddings, mean_length=self._mean_length)

    def remove(self, content_ids: Sequence[str]) -> None:
        """Delete points; returns when Qdrant has applied it."""
        self.collection().remove(content_ids)

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

    def collection(self) -> Collection:
        """Return the collection with the client that reaches it, which must be a blocking one."""
        if isinstance(self._client, AsyncQdrantClient):
            raise InvalidInputError(
                "an AsyncQdrantClient serves `afetch` and `afetch_batch` only; await these, or "
                "pass a QdrantClient"
            )
        return Collection(client=self._client, name=self._collection, reader=self._reader)

    def _pools(
        self, queries: Sequence[Query], found: Sequence[Any], is_filtered: bool
    ) -> list[CandidatePool]:
        may_be_empty = is_filtered or self._requests.restricts
        if not may_be_empty and not all(found):
            raise InvalidInputError(
                f"there are no documents to fetch from in {self._collection!r} (vector name "
                f"{self._reader.vector_name!r}); add some first"
            )
        return [
            self._reader.pool(
                query,
                self._reader.with_text(points),
                scores_are_relevance=self._requests.fusion is not None,
            )
            for query, points in zip(queries, found, strict=True)
        ]
