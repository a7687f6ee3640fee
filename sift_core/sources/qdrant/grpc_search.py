"""Searches by gRPC that read vectors from the bytes in which they arrive.

The client makes a Python float of each number first, which takes five to nine times as long as the
rest of a fetch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from qdrant_client import AsyncQdrantClient, QdrantClient, grpc, models
from qdrant_client.conversions.conversion import GrpcToRest, RestToGrpc

from sift_core.sources.qdrant.calls import is_local, timeout_s
from sift_core.types import FloatArray, Metadata


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


def prefers_grpc(client: QdrantClient | AsyncQdrantClient) -> bool:
    """Return whether a client searches by gRPC."""
    return not is_local(client) and bool(client.init_options.get("prefer_grpc"))


def send(
    client: Any, collection: str, requests: Sequence[models.QueryRequest]
) -> grpc.QueryResponse | grpc.QueryBatchResponse | Any:
    """Return the answer to at least one request, or what to await for it if the client is async.

    The client's texts to embed are not embedded: requests hold vectors.
    """
    asked = [RestToGrpc.convert_query_request(each, collection) for each in requests]
    points, seconds = client.grpc_points, timeout_s(client)
    if len(asked) == 1:
        return points.Query(asked[0], timeout=seconds)
    batch = grpc.QueryBatchPoints(collection_name=collection, query_points=asked)
    return points.QueryBatch(batch, timeout=seconds)


def hits_of(response: grpc.QueryResponse | grpc.QueryBatchResponse) -> list[list[Hit]]:
    """Return what each request found.

    Raises:
        ValueError: If a point is none, for instance without an id.
    """
    is_single = isinstance(response, grpc.QueryResponse)
    found = [response] if is_single else response.result
    return [[_hit(point) for point in each.result] for each in found]


def _hit(point: grpc.ScoredPoint) -> Hit:
    return Hit(
        id=GrpcToRest.convert_point_id(point.id),
        score=point.score,
        vector=_vectors(point.vectors),
        payload=GrpcToRest.convert_payload(point.payload),
    )


def _vectors(vectors: grpc.VectorsOutput) -> Any:
    """Return a point's vectors as the client has them, but dense ones as arrays."""
    kind = vectors.WhichOneof("vectors_options")
    if kind == "vector":
        return _vector(vectors.vector)
    if kind == "vectors":
        return {name: _vector(vector) for name, vector in vectors.vectors.vectors.items()}
    return None


def _vector(vector: grpc.VectorOutput) -> Any:
    kind = vector.WhichOneof("vector")
    if kind == "dense":
        return _numbers(vector.dense)
    if kind == "sparse":  # not converted, since nobody reads the words of a hit
        return vector.sparse
    return GrpcToRest.convert_vector_output(vector)


def _numbers(dense: grpc.DenseVector) -> FloatArray:
    """Return a vector's numbers, read from its message: a tag, the length in bytes, the numbers."""
    n_bytes = 4 * len(dense.data)
    message = dense.SerializeToString()
    start = 1 + max(1, -(-n_bytes.bit_length() // 7))  # seven bits of the length a byte
    if len(message) != start + n_bytes:  # a later version's message, with more in it
        return np.array(dense.data[:], dtype=np.float32)
    return np.frombuffer(message, dtype="<f4", offset=start)
