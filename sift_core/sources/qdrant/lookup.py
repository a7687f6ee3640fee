"""The vectors of points that somebody else has found: a look-up by id."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from functools import partial
from typing import Any

from qdrant_client import AsyncQdrantClient, QdrantClient

from sift_core.errors import CandidateSourceError, InvalidInputError
from sift_core.pacing import paced
from sift_core.sources.qdrant.calls import (
    STORE_ERRORS,
    Deadline,
    awithin,
    failure,
    timeout_s,
    within,
)
from sift_core.sources.qdrant.points import dense_vector, vectors_wanted
from sift_core.types import FloatArray

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

    A request for every 1,000 points, all within the client's timeout, or a minute where it has
    none.

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
    """
    lookup = _Lookup(collection_name, point_ids, vector_name, texts, text_key)
    deadline = Deadline(timeout_s(client))
    try:
        for request in lookup.requests():
            lookup.keep(within(deadline.left_s, partial(client.retrieve, **request)))
    except STORE_ERRORS as error:
        raise lookup.refusal(error, client) from error
    return lookup.vectors()


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

    At a pace (`sift_core.pacing`), so that many answers do not block the event loop. `dimension`
    is d where it is known, for that pace.
    """
    async with paced(len(point_ids), dimension or _USUAL_DIMENSION):
        if isinstance(client, QdrantClient):
            return await asyncio.to_thread(
                stored_vectors,
                client,
                collection_name,
                point_ids,
                vector_name=vector_name,
                texts=texts,
                text_key=text_key,
            )
        lookup = _Lookup(collection_name, point_ids, vector_name, texts, text_key)
        deadline = Deadline(timeout_s(client))
        try:
            for request in lookup.requests():
                lookup.keep(await awithin(deadline.left_s, client.retrieve(**request)))
        except STORE_ERRORS as error:
            raise lookup.refusal(error, client) from error
    return lookup.vectors()


class _Lookup:
    """What to ask for, and the vectors that came back, by point id."""

    def __init__(
        self,
        collection_name: str,
        point_ids: Sequence[object],
        vector_name: str | None,
        texts: Sequence[str] | None,
        text_key: str,
    ) -> None:
        if texts is not None and len(texts) != len(point_ids):
            raise InvalidInputError(
                f"`texts` must have one text a point, got {len(texts)} for {len(point_ids)}"
            )
        self._collection_name = collection_name
        self._ids = [point_id(each) for each in point_ids]
        self._vector_name = vector_name
        self._texts = texts
        self._text_key = text_key
        self._found: dict[int | str, tuple[FloatArray, Any]] = {}

    def requests(self) -> list[dict[str, Any]]:
        """Return the arguments of `retrieve` for every batch."""
        wanted = [each for each in dict.fromkeys(self._ids) if each is not None]
        return [
            {
                "collection_name": self._collection_name,
                "ids": wanted[start : start + VECTORS_A_REQUEST],
                "with_payload": False if self._texts is None else [self._text_key],
                "with_vectors": vectors_wanted(self._vector_name),
            }
            for start in range(0, len(wanted), VECTORS_A_REQUEST)
        ]

    def keep(self, points: Sequence[Any]) -> None:
        for point in points:
            vector = dense_vector(point, vector_name=self._vector_name)
            key = point_id(point.id)
            if vector is not None and key is not None:
                text = (point.payload or {}).get(self._text_key)
                self._found[key] = (vector, text)

    def vectors(self) -> list[FloatArray | None]:
        vectors: list[FloatArray | None] = []
        for row, key in enumerate(self._ids):
            vector, text = (None, None) if key is None else self._found.get(key, (None, None))
            is_same = self._texts is None or self._texts[row] == text
            vectors.append(vector if is_same else None)
        return vectors

    def refusal(
        self, error: Exception, client: AsyncQdrantClient | QdrantClient
    ) -> CandidateSourceError:
        place = f"collection {self._collection_name!r} (vector name {self._vector_name or ''!r})"
        action = f"return the vectors of {len(self._ids)} points of"
        return failure(error, client).as_error(action, place)


def point_id(value: object) -> int | str | None:
    """Return an id as Qdrant spells it, an integer or a UUID; None for what it would refuse.

    Digits that are too many for a number, or begin with 0, may be a UUID without hyphens.
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
