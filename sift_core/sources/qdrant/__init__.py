"""Qdrant, in this process, by REST or by gRPC: here the vectors of points, by id or in hits."""

from sift_core.errors import MissingDependencyError

try:  # here for all modules of this folder
    import grpc  # noqa: F401  # which qdrant-client brings along
    import qdrant_client  # noqa: F401
except ImportError as error:
    raise MissingDependencyError("qdrant-client", extra="qdrant") from error

from sift_core.sources.qdrant.by_id import astored_vectors, point_id, stored_vectors
from sift_core.sources.qdrant.missing_keys import warn_of_missing_keys
from sift_core.sources.qdrant.points import dense_vector, dense_vectors, vectors_wanted

__all__ = [
    "astored_vectors",
    "dense_vector",
    "dense_vectors",
    "point_id",
    "stored_vectors",
    "vectors_wanted",
    "warn_of_missing_keys",
]
