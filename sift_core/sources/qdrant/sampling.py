"""Documents drawn at random from a Qdrant collection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sift_core.errors import InvalidInputError, MissingDependencyError
from sift_core.sources.qdrant.calls import Collection
from sift_core.sources.qdrant.points import PointReader
from sift_core.sources.qdrant.vectors import vectors_wanted
from sift_core.sources.sampling import nothing_to_sample
from sift_core.types import DocumentSample

try:
    from qdrant_client import models
except ImportError as error:
    raise MissingDependencyError("qdrant-client", extra="qdrant") from error

# Up to so many points their ids are listed, a page of 10,000 a request, some 10 s in all, and the
# draw obeys the seed; of more the server draws, which takes no longer than a search. Guess.
MOST_LISTED = 1_000_000
POINTS_A_REQUEST = 100


def sample_points(
    collection: Collection, reader: PointReader, n: int, generator: np.random.Generator
) -> DocumentSample:
    """Return up to n random points, all of them where there are fewer.

    Args:
        collection: Where from.
        reader: Reads the points, and names the vector.
        n: >= 1.
        generator: What to draw with.

    Raises:
        CandidateSourceError: If Qdrant fails, a point lacks its vector or its text, or the
            vector is not finite.
        InvalidInputError: If the collection is empty, or has no such dense vector.
    """
    n_stored = int(collection.ask("sample", "count").count)
    if n_stored == 0:
        raise nothing_to_sample(reader.place)
    sizes = collection.dense_sizes()
    if reader.vector_name not in sizes:
        raise InvalidInputError(
            f"collection {collection.name!r} has the dense vectors {sizes}, none is called "
            f"{reader.vector_name!r}; pass one of them as `vector_name`"
        )
    wanted = {"with_payload": True, "with_vectors": vectors_wanted(reader.vector_name)}
    if n_stored > MOST_LISTED:
        query = models.SampleQuery(sample=models.Sample.RANDOM)
        points = collection.ask("sample", "query_points", query=query, limit=n, **wanted).points
        return reader.sample(points, n_stored=n_stored, is_seeded=False)
    ids = [point.id for point in collection.points("sample", payload=False)]
    drawn = [ids[i] for i in np.argsort(generator.random(len(ids)), kind="stable")[:n]]
    return reader.sample(_points(collection, drawn, wanted), n_stored=len(ids))


def _points(collection: Collection, ids: Sequence[Any], wanted: dict[str, Any]) -> list[Any]:
    """Return points in the order of `ids`, without those deleted since they were listed."""
    found: dict[Any, Any] = {}
    for start in range(0, len(ids), POINTS_A_REQUEST):
        some = ids[start : start + POINTS_A_REQUEST]
        points = collection.ask("sample", "retrieve", ids=some, **wanted)
        found.update((point.id, point) for point in points)
    return [found[point_id] for point_id in ids if point_id in found]
