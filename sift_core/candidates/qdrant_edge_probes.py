"""What a Qdrant Edge shard does not tell, learnt by asking it for searches and points."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sift_core.candidates.qdrant_edge_folder import reraise_unless_engine
from sift_core.errors import MissingDependencyError
from sift_core.types import FloatArray

try:
    import qdrant_edge as edge
except ImportError as error:
    raise MissingDependencyError("qdrant-edge-py", extra="qdrant-edge") from error

# Neither a graph nor compressed vectors.
_EXACT = edge.SearchParams(exact=True, quantization=edge.QuantizationSearchParams(ignore=True))


def misfit(shard: edge.EdgeShard, name: str, dimension: int, *, place: str) -> str | None:
    """Return why a shard takes no vectors (dimension,) under a name; None where it does.

    None too where more is wrong than the vector, as with a closed shard.
    """
    try:
        shard.info()
    except BaseException as error:
        reraise_unless_engine(error)
        return None
    nearest = edge.Query.Nearest([0.0] * dimension, name)
    try:
        shard.query(edge.QueryRequest(limit=1, query=nearest))
    except BaseException as error:
        reraise_unless_engine(error)
        return (
            f"vectors of {dimension} numbers as {name!r} do not fit {place}, whose points have "
            f"{_stored_vectors(shard)} ({error}); is `vector_name` right, and were both embedded "
            f"by one model?"
        )
    return None


def scores_are_distances(
    shard: edge.EdgeShard, name: str, vector: FloatArray, point_id: edge.PointId
) -> bool:
    """Return whether a shard's metric is a distance: not negative, whatever the direction.

    A product has another sign for the opposite direction.

    Args:
        shard: Where the point is.
        name: Which of its vectors.
        vector: Any, shape (d,).
        point_id: Any that has such a vector.
    """
    only = edge.Filter(must=[edge.HasIdCondition({point_id})])
    requests = [
        edge.QueryRequest(
            limit=1,
            query=edge.Query.Nearest(direction.tolist(), name),
            filter=only,
            params=_EXACT,
        )
        for direction in (vector, -vector)
    ]
    scores = [
        hit.score for hits in shard.query_batch(edge.QueryBatchRequest(requests)) for hit in hits
    ]
    return bool(scores) and min(scores) >= 0 < max(scores)


def _stored_vectors(shard: edge.EdgeShard) -> str:
    """Return names and sizes of the vectors of the first points, in words."""
    request = edge.ScrollRequest(limit=100, with_payload=False, with_vector=True)
    try:
        records = shard.scroll(request)[0]
    except BaseException as error:
        reraise_unless_engine(error)
        return "vectors that cannot be read"
    kinds: dict[str, str] = {}
    for record in records:
        vector = record.vector
        for name, value in (vector if isinstance(vector, Mapping) else {"": vector}).items():
            kinds.setdefault(name, _kind(value))
    listed = ", ".join(f"{name!r} ({kind})" for name, kind in sorted(kinds.items()))
    return listed or "no vectors yet"


def _kind(vector: Any) -> str:
    if isinstance(vector, edge.SparseVector):
        return "sparse"
    if vector and isinstance(vector[0], list):
        return f"several of {len(vector[0])} numbers"
    return f"{len(vector or ())} numbers"
