"""Points that are looked up by id, or by the document that they are of."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from operator import methodcaller
from typing import Any

from qdrant_client import AsyncQdrantClient, QdrantClient, models

from sift_core.errors import InvalidInputError
from sift_core.pacing import paced
from sift_core.places import DOCUMENT_KEYS, document_of
from sift_core.sources.layouts import METADATA_KEYS, OWN_ID_KEY
from sift_core.sources.qdrant.calls import STORE_ERRORS, Steps, arun, failure, run
from sift_core.sources.qdrant.points import DOCUMENT_ID_KEY, dense_vector, vectors_wanted
from sift_core.sources.qdrant.source import QdrantSource
from sift_core.types import Document, FloatArray

VECTORS_A_REQUEST = 1000  # some 10 MB of JSON with vectors of 1,000 numbers. Guess.
_USUAL_DIMENSION = 768  # for the pace at which vectors are asked for. Guess.
_LARGEST_NUMBER = 2**64 - 1  # that is a point's id


def stored_vectors(
    client: QdrantClient,
    collection_name: str,
    point_ids: Sequence[object],
    *,
    vector_name: str | None = None,
    texts: Sequence[str] | None = None,
    text_key: str = "text",
) -> list[FloatArray | None]:
    """Return the dense vector of each point, shape (d,), float32; None where there is none.

    A request for every 1,000 points.

    Args:
        client: A `QdrantClient` of any kind.
        collection_name: Name of the collection, or an alias.
        point_ids: n ids as a store of a framework has them: UUIDs in any spelling, integers,
            digits. What cannot be a point's id has no vector.
        vector_name: Which of the named vectors; None or "" for the unnamed one. A multivector
            counts as none.
        texts: n texts, where a vector counts only if its point has this very text: a splitter
            may have changed a document's text and kept its id.
        text_key: Payload key of the points' texts.

    Raises:
        CandidateSourceError: If Qdrant fails or has no such collection or vector.
        InvalidInputError: If `point_ids` and `texts` differ in length.

    Example:
        >>> from qdrant_client import QdrantClient, models
        >>> client = QdrantClient(":memory:")
        >>> made = client.create_collection(
        ...     "ferry", models.VectorParams(size=2, distance=models.Distance.DOT)
        ... )
        >>> done = client.upsert("ferry", [models.PointStruct(id=7, vector=[1.0, 0.5])])
        >>> stored_vectors(client, "ferry", [7])[0].tolist()
        [1.0, 0.5]
    """
    return run(client, _stored(client, collection_name, point_ids, vector_name, texts, text_key))


async def astored_vectors(
    client: AsyncQdrantClient | QdrantClient,
    collection_name: str,
    point_ids: Sequence[object],
    *,
    vector_name: str | None = None,
    texts: Sequence[str] | None = None,
    text_key: str = "text",
    dimension: int | None = None,
) -> list[FloatArray | None]:
    """Return what `stored_vectors` returns: natively with an `AsyncQdrantClient`, else in a thread.

    At a pace (`sift_core.pacing.paced`), so that many answers do not block the event loop.
    `dimension` is d where it is known, for that pace.

    Example:
        >>> import asyncio
        >>> from qdrant_client import QdrantClient, models
        >>> client = QdrantClient(":memory:")
        >>> made = client.create_collection(
        ...     "ferry", models.VectorParams(size=2, distance=models.Distance.DOT)
        ... )
        >>> done = client.upsert("ferry", [models.PointStruct(id=7, vector=[1.0, 0.5])])
        >>> asyncio.run(astored_vectors(client, "ferry", [7]))[0].tolist()
        [1.0, 0.5]
    """
    steps = _stored(client, collection_name, point_ids, vector_name, texts, text_key)
    async with paced(len(point_ids), dimension or _USUAL_DIMENSION):
        if isinstance(client, QdrantClient):
            return await asyncio.to_thread(run, client, steps)
        return await arun(client, steps)


def stored_documents(
    source: QdrantSource, name: str, document_key: str | None = None, *, n: int = 10_000
) -> dict[str, Document]:
    """Return the documents with an id, or the passages of a document, by their points' ids.

    Args:
        source: With a `QdrantClient`.
        name: The id of one, or the name of the document that its passages are of.
        document_key: Metadata key of that name. Default: one of `DOCUMENT_KEYS`.
        n: How many at most. Default: 10,000.

    Raises:
        CandidateSourceError: If Qdrant fails, or refuses filters by keys without an index.
    """
    names = DOCUMENT_KEYS if document_key is None else [document_key]
    nested = [f"{outer}.{key}" for outer in METADATA_KEYS for key in names]  # by other tools
    keys = [DOCUMENT_ID_KEY, OWN_ID_KEY, *names, *nested]
    same = models.MatchValue(value=name)
    conditions: list[Any] = [models.FieldCondition(key=key, match=same) for key in keys]
    if (spelled := point_id(name)) is not None:
        conditions.append(models.HasIdCondition(has_id=[spelled]))
    stored = source.collection()
    points, _ = stored.ask(
        "read from",
        "scroll",
        scroll_filter=models.Filter(should=conditions),
        limit=n,
        with_payload=True,
        with_vectors=False,
    )
    found = {str(point.id): stored.reader.document(point) for point in points}
    return {
        key: one
        for key, one in found.items()
        if key == str(spelled) or name in (one.document_id, document_of(one.metadata, document_key))
    }


def _stored(
    client: AsyncQdrantClient | QdrantClient,
    collection_name: str,
    point_ids: Sequence[object],
    vector_name: str | None,
    texts: Sequence[str] | None,
    text_key: str,
) -> Steps[list[FloatArray | None]]:
    if texts is not None and len(texts) != len(point_ids):
        raise InvalidInputError(
            f"`texts` must have one text a point, got {len(texts)} for {len(point_ids)}"
        )
    ids = [point_id(each) for each in point_ids]
    wanted = [each for each in dict.fromkeys(ids) if each is not None]
    found: dict[int | str | None, tuple[FloatArray, Any]] = {}
    try:
        for start in range(0, len(wanted), VECTORS_A_REQUEST):
            points = yield methodcaller(
                "retrieve",
                collection_name=collection_name,
                ids=wanted[start : start + VECTORS_A_REQUEST],
                with_payload=False if texts is None else [text_key],
                with_vectors=vectors_wanted(vector_name),
            )
            for point in points:
                vector = dense_vector(point, vector_name=vector_name)
                if vector is not None:
                    found[point_id(point.id)] = vector, (point.payload or {}).get(text_key)
    except STORE_ERRORS as error:
        place = f"collection {collection_name!r} (vector name {vector_name or ''!r})"
        action = f"return the vectors of {len(ids)} points of"
        raise failure(error, client).as_error(action, place) from error
    vectors: list[FloatArray | None] = []
    for row, key in enumerate(ids):
        vector, text = found.get(key, (None, None))
        vectors.append(vector if texts is None or texts[row] == text else None)
    return vectors


def point_id(value: object) -> int | str | None:
    """Return an id as Qdrant spells it: an integer or a UUID, or None if Qdrant refuses it.

    Digits that are too many for a number, or begin with 0, may be a UUID without hyphens.

    Example:
        >>> point_id("7"), point_id("ferry.md")
        (7, None)
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value if 0 <= value <= _LARGEST_NUMBER else None
    spelled = str(value)
    if spelled.isascii() and spelled.isdecimal():
        number = int(spelled) if len(spelled) <= len(str(_LARGEST_NUMBER)) else -1
        if 0 <= number <= _LARGEST_NUMBER and str(number) == spelled:
            return number
    try:
        return str(uuid.UUID(spelled))
    except ValueError:
        return None
