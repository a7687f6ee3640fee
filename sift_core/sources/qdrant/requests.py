"""Requests to Qdrant for a query, and the points in its answers.

NumPy reads the vectors of an answer by gRPC. The client makes a Python float of each number first,
which takes five to nine times as long as the rest of a fetch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from pydantic import ValidationError
from qdrant_client import AsyncQdrantClient, QdrantClient, grpc, models
from qdrant_client.conversions.conversion import GrpcToRest, RestToGrpc

from sift_core.errors import InvalidInputError
from sift_core.sources.contract import as_float32, check_fetch_arguments
from sift_core.sources.qdrant.calls import is_local
from sift_core.sources.qdrant.points import vectors_wanted
from sift_core.sources.qdrant.words import WORDS
from sift_core.types import Metadata, Query

Prefetch: TypeAlias = Callable[[Query, int], "models.Prefetch | Sequence[models.Prefetch]"]
Fusion: TypeAlias = "models.Fusion | models.FusionQuery | models.RrfQuery | models.FormulaQuery"

LONGEST_WAIT_S = 60.0  # for a search by gRPC where the client has no timeout of its own. Guess.

# Qdrant ranks quantised vectors by the originals again if asked; for others this says nothing.
RESCORE = models.SearchParams(quantization=models.QuantizationSearchParams(rescore=True))


@dataclass(frozen=True, kw_only=True)
class RequestMaker:
    """Makes the requests of a `QdrantSource`, whose docstring explains the options.

    Raises:
        InvalidInputError: If options do not go together.
    """

    vector_name: str
    search_params: models.SearchParams | None
    score_threshold: float | None
    prefetch: Prefetch | None
    fusion: Fusion | None

    def __post_init__(self) -> None:
        if self.prefetch is not None and not callable(self.prefetch):
            raise InvalidInputError(
                f"`prefetch` must be a function of the query and the number of candidates, got "
                f"{type(self.prefetch).__name__}"
            )
        if self.fusion is not None and self.prefetch is None:
            raise InvalidInputError("`fusion` ranks what `prefetch` finds; pass that too")

    @property
    def restricts(self) -> bool:
        """Whether an answer may be empty although there are documents."""
        return self.score_threshold is not None or self.prefetch is not None

    def make(
        self,
        queries: Sequence[Query],
        n_candidates: int,
        condition: models.Filter | None,
        *,
        embedder_name: str | None,
    ) -> list[models.QueryRequest]:
        """Return what to ask, one request a query.

        Raises:
            InvalidInputError: If an argument or an option cannot be used.
        """
        _check_filter(condition)
        n_candidates = check_fetch_arguments(
            queries, n_candidates, dimension=None, embedder_name=embedder_name
        )
        return [self._request(query, n_candidates, condition) for query in queries]

    def make_for_words(
        self, words: models.SparseVector, n_candidates: int, condition: models.Filter | None
    ) -> models.QueryRequest:
        """Return what to ask for documents with words; no option of dense searches holds.

        Raises:
            InvalidInputError: If the filter is of another kind.
        """
        _check_filter(condition)
        return models.QueryRequest(
            query=models.NearestQuery(nearest=words),
            using=WORDS,
            filter=condition,
            limit=n_candidates,
            with_payload=True,
            with_vector=[self.vector_name],
        )

    def _request(
        self, query: Query, n: int, condition: models.Filter | None
    ) -> models.QueryRequest:
        ranking: Any = self.fusion  # of what was prefetched
        if isinstance(ranking, models.Fusion):
            ranking = models.FusionQuery(fusion=ranking)
        is_fused = ranking is not None
        prefetch = None if self.prefetch is None else self.prefetch(query, n)
        try:
            return models.QueryRequest(
                query=ranking or models.NearestQuery(nearest=as_float32(query.vector).tolist()),
                prefetch=list(prefetch) if isinstance(prefetch, Sequence) else prefetch,
                using=None if is_fused else self.vector_name or None,
                filter=condition,
                params=None if is_fused else self.search_params,
                score_threshold=self.score_threshold,
                limit=n,
                with_payload=True,
                # Alone, also if it is unnamed: a hit's words would be half as much again. Of what
                # a prefetch finds, a point may have other vectors, which an error then names.
                with_vector=vectors_wanted(self.vector_name) if prefetch else [self.vector_name],
            )
        except ValidationError as error:
            first = error.errors()[0]
            raise InvalidInputError(
                f"`search_params`, `score_threshold`, `fusion` and what `prefetch` returns must be "
                f"as qdrant_client.models has them: {first['msg']} at {first['loc']}"
            ) from error


def _check_filter(condition: object) -> None:
    if not isinstance(condition, models.Filter | None):
        raise InvalidInputError(
            f"`filter` must be a qdrant_client.models.Filter, got {type(condition).__module__}."
            f"{type(condition).__name__}; each kind of store has its own kind of filter"
        )


def rescored(params: models.SearchParams | None) -> models.SearchParams:
    """Return parameters with which quantised vectors are ranked by the originals again."""
    if params is None:
        return RESCORE
    if not isinstance(params, models.SearchParams) or params.quantization is not None:
        return params
    return params.model_copy(update={"quantization": RESCORE.quantization})


def prefers_grpc(client: QdrantClient | AsyncQdrantClient) -> bool:
    """Return whether a client searches by gRPC."""
    return not is_local(client) and bool(client.init_options.get("prefer_grpc"))


def send(client: Any, collection: str, requests: Sequence[models.QueryRequest]) -> Any:
    """Return the client's answer to at least one request, or what to await for it."""
    if len(requests) > 1:
        return client.query_batch_points(collection, requests=requests)
    (request,) = requests
    return client.query_points(
        collection,
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


def send_by_grpc(client: Any, collection: str, requests: Sequence[models.QueryRequest]) -> Any:
    """Return the answer as gRPC's message, or what to await for it.

    The client's texts to embed are not embedded: requests hold vectors.
    """
    timeout = client.init_options.get("timeout")
    seconds = LONGEST_WAIT_S if timeout is None else float(timeout)
    asked = [RestToGrpc.convert_query_request(each, collection) for each in requests]
    if len(asked) == 1:
        return client.grpc_points.Query(asked[0], timeout=seconds)
    batch = grpc.QueryBatchPoints(collection_name=collection, query_points=asked)
    return client.grpc_points.QueryBatch(batch, timeout=seconds)


class Hit(NamedTuple):
    """What a search found, as `PointReader` reads it; a tuple, since a thousand are made a fetch.

    Args:
        id: The point's.
        score: By the collection's metric, or fused.
        vector: Shape (d,), float32, where it is dense, else what the client makes of it; named
            ones in a mapping.
        payload: As it was stored.
    """

    id: object
    score: float
    vector: Any
    payload: Metadata


def points_of(answer: Any) -> list[Sequence[Any]]:
    """Return the points that each request found, from an answer of `send` or `send_by_grpc`.

    Raises:
        ValueError: If a point is none, for instance without an id.
    """
    if isinstance(answer, grpc.QueryBatchResponse):
        return [list(map(_hit, each.result)) for each in answer.result]
    if isinstance(answer, grpc.QueryResponse):
        return [list(map(_hit, answer.result))]
    answers = answer or [] if isinstance(answer, list | None) else [answer]
    return [each.points for each in answers if each is not None]


def _hit(point: grpc.ScoredPoint) -> Hit:
    kind = point.vectors.WhichOneof("vectors_options")
    vectors: Any = None
    if kind == "vector":
        vectors = _vector(point.vectors.vector)
    elif kind == "vectors":
        named = point.vectors.vectors.vectors
        vectors = {name: _vector(vector) for name, vector in named.items()}
    return Hit(
        id=GrpcToRest.convert_point_id(point.id),
        score=point.score,
        vector=vectors,
        payload=GrpcToRest.convert_payload(point.payload),
    )


def _vector(vector: grpc.VectorOutput) -> Any:
    """Return a vector as the client has it, but a dense one as an array."""
    kind = vector.WhichOneof("vector")
    if kind == "dense":
        return np.array(vector.dense.data, dtype=np.float32)
    if kind == "sparse":  # not converted, since nobody reads the words of a hit
        return vector.sparse
    return GrpcToRest.convert_vector_output(vector)
