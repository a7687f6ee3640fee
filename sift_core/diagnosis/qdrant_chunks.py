"""Chunks drawn at random from a `QdrantSource`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from sift_core.candidates.deadline import within
from sift_core.candidates.qdrant_clients import timeout_s
from sift_core.candidates.qdrant_collection import QdrantSource
from sift_core.candidates.qdrant_failures import STORE_ERRORS, failure
from sift_core.candidates.qdrant_writing import dense_sizes
from sift_core.diagnosis.chunk_sample import ChunkSample
from sift_core.errors import CandidateSourceError, InvalidInputError, MissingDependencyError
from sift_core.types import Query, as_count

try:
    from qdrant_client import models
except ImportError as error:
    raise MissingDependencyError("qdrant-client", extra="qdrant") from error

# Up to so many points their ids are listed, 10,000 a request, some 10 s in all, and the draw
# obeys the seed; of more the server draws, which takes no longer than a search. Guess.
MOST_LISTED = 1_000_000
_IDS_A_PAGE = 10_000
_POINTS_A_REQUEST = 100


def sample_qdrant(
    source: QdrantSource, n_chunks: int, generator: np.random.Generator
) -> ChunkSample:
    """Return up to `n_chunks` random chunks of a collection, all of them where it has fewer.

    Ids alone are listed, a page at a time, and the drawn points are read. Beyond `MOST_LISTED`
    points the server draws (Qdrant 1.11 or later), with a seed of its own.

    Args:
        source: With a blocking client.
        n_chunks: >= 1.
        generator: What to draw with.

    Raises:
        CandidateSourceError: If Qdrant fails, or a point lacks its vector or its text, or the
            vector is not finite.
        InvalidInputError: If the collection is empty, or has no such dense vector.
    """
    n_chunks = as_count("n_chunks", n_chunks, minimum=1)
    n_stored = int(_ask(source, "count").count)
    if n_stored == 0:
        raise InvalidInputError("the store is empty, so there is nothing to diagnose")
    is_seeded = n_stored <= MOST_LISTED
    if is_seeded:
        ids, n_stored = _drawn_ids(source, n_chunks, generator)
        points = _points(source, ids)
    else:
        points = _drawn_by_server(source, n_chunks)
    # A source has no public way to turn points into chunks; the query matters to similarities alone
    unasked = Query(text="", embedding=np.ones(_dimension(source)))
    pool = source._reader.pool(unasked, points)
    return ChunkSample(
        document_ids=pool.document_ids,
        texts=pool.texts,
        embeddings=pool.embeddings,
        metadata=[*pool.metadata],
        n_stored=n_stored,
        is_seeded=is_seeded,
    )


def _drawn_ids(
    source: QdrantSource, n: int, generator: np.random.Generator
) -> tuple[list[Any], int]:
    """Return the ids of n points, those with the smallest random keys, and how many there are."""
    keys = np.empty(0)
    ids: list[Any] = []
    n_seen = 0
    offset = None
    while True:
        page, offset = _ask(
            source,
            "scroll",
            limit=_IDS_A_PAGE,
            offset=offset,
            with_payload=False,
            with_vectors=False,
        )
        n_seen += len(page)
        keys = np.concatenate([keys, generator.random(len(page))])
        ids += [point.id for point in page]
        kept = np.argsort(keys, kind="stable")[:n]
        keys, ids = keys[kept], [ids[position] for position in kept]
        if offset is None:
            return ids, n_seen


def _points(source: QdrantSource, ids: Sequence[Any]) -> list[Any]:
    """Return points with payload and the vector, in the order of `ids`.

    One that was deleted since it was listed is left out.
    """
    found: dict[Any, Any] = {}
    for start in range(0, len(ids), _POINTS_A_REQUEST):
        some = _ask(
            source,
            "retrieve",
            ids=ids[start : start + _POINTS_A_REQUEST],
            with_payload=True,
            with_vectors=_vectors_wanted(source),
        )
        found.update((point.id, point) for point in some)
    return [found[point_id] for point_id in ids if point_id in found]


def _drawn_by_server(source: QdrantSource, n: int) -> list[Any]:
    answer = _ask(
        source,
        "query_points",
        query=models.SampleQuery(sample=models.Sample.RANDOM),
        limit=n,
        with_payload=True,
        with_vectors=_vectors_wanted(source),
    )
    return list(answer.points)


def _vectors_wanted(source: QdrantSource) -> bool | list[str]:
    return [source._vector_name] if source._vector_name else True


def _dimension(source: QdrantSource) -> int:
    """Return the dimension of the vector that the source searches."""
    sizes = dense_sizes(_ask(source, "get_collection"))
    if source._vector_name not in sizes:
        raise InvalidInputError(
            f"collection {source._collection!r} has the dense vectors {sizes}, none is called "
            f"{source._vector_name!r}; pass one of them as `vector_name`"
        )
    return sizes[source._vector_name]


def _ask(source: QdrantSource, method: str, **arguments: Any) -> Any:
    """Return what a method of the client returns; its failures become errors of ours."""
    client = source._blocking_client()
    call = partial(getattr(client, method), source._collection, **arguments)
    try:
        return within(timeout_s(client), call)
    except CandidateSourceError:
        raise
    except STORE_ERRORS as error:
        place = f"collection {source._collection!r}"
        raise failure(error).as_error("sample", place) from error
