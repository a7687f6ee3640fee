"""Documents drawn at random from a Qdrant Edge shard."""

from __future__ import annotations

from typing import Any

import numpy as np

from sift_core.candidates.qdrant_edge_folder import engine_failures
from sift_core.candidates.qdrant_edge_writing import IDS_A_PAGE, WritableShard
from sift_core.candidates.sampling import Draw, nothing_to_sample
from sift_core.errors import MissingDependencyError
from sift_core.types import DocumentSample

try:
    import qdrant_edge as edge
except ImportError as error:
    raise MissingDependencyError("qdrant-edge-py", extra="qdrant-edge") from error


def sample_shard(store: WritableShard, n: int, generator: np.random.Generator) -> DocumentSample:
    """Return up to n random points of a shard, all of them where there are fewer.

    Args:
        store: The shard, which may not be there yet.
        n: >= 1.
        generator: What to draw with.

    Raises:
        CandidateSourceError: If the engine fails, a point lacks its vector or its text, or the
            vector is not finite.
        InvalidInputError: If there is no point.
    """
    shard = store.shard
    draw: Draw[Any] = Draw(n, generator)
    offset = None
    while shard is not None:
        page = edge.ScrollRequest(
            offset=offset, limit=IDS_A_PAGE, with_payload=False, with_vector=False
        )
        with engine_failures("sample", store.place):
            records, offset = shard.scroll(page)
        draw.add([record.id for record in records])
        if offset is None:
            break
    if shard is None or not draw.items:
        raise nothing_to_sample(store.place)
    with engine_failures("sample", store.place):
        records = shard.retrieve(draw.items, True, [store.reader.vector_name])
    found = {record.id: record for record in records}
    points = [found[point_id] for point_id in draw.items if point_id in found]
    return store.reader.sample(points, n_stored=draw.n_seen)
