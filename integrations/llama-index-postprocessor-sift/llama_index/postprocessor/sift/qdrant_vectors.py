"""Dense vectors by node id from what Qdrant returns: asked for by id, or along with hits."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_LARGEST_NUMBER = 2**64 - 1  # of a point's id


def dense_vectors_of(store: Any) -> list[str] | bool:
    """Return what to ask Qdrant for as `with_vectors`; "" is the name of an unnamed vector."""
    name = store.dense_vector_name
    return [name] if name else True


def qdrant_request(store: Any, points: Mapping[str | int, str]) -> dict[str, Any]:
    """Return the arguments of a client's `retrieve` for points by their ids."""
    # UUIDs as they were stored: the local mode of old clients compares spellings.
    spelled = [point if isinstance(point, int) else points[point] for point in points]
    return {
        "collection_name": store.collection_name,
        "ids": spelled,
        "with_payload": False,
        "with_vectors": dense_vectors_of(store),
    }


def vectors_of_records(
    store: Any, points: Mapping[str | int, str], records: Iterable[Any]
) -> Iterator[tuple[str, Any]]:
    """Yield node id and dense vector of each record that has one."""
    for record in records:
        vector = dense_vector(store, record)
        if vector is not None:
            yield points[point_id(str(record.id))], vector


def dense_vector(store: Any, record: Any) -> list[float] | None:
    """Return a record's dense vector; named ones come in a dictionary, unnamed ones bare."""
    vector = record.vector
    if isinstance(vector, dict):
        vector = vector.get(store.dense_vector_name)
    return vector  # type: ignore[no-any-return]


def point_ids(node_ids: Iterable[str]) -> dict[str | int, str]:
    """Return the node ids that can be a point's, by point id: Qdrant refuses all others."""
    return {point: node_id for node_id in node_ids if (point := point_id(node_id)) != ""}


def point_id(node_id: str) -> str | int:
    """Return a node id as Qdrant spells it, a UUID or a number; "" if it is neither.

    Digits that are too many for a number, or begin with 0, may be a UUID without hyphens.
    """
    if node_id.isascii() and node_id.isdecimal():
        number = int(node_id)
        if number <= _LARGEST_NUMBER and str(number) == node_id:
            return number
    try:
        return str(uuid.UUID(node_id))
    except ValueError:
        return ""
