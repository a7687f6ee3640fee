"""A Qdrant store for one query whose hits bring their vectors along.

`QdrantVectorStore` builds filters, hybrid searches and shard keys itself, but never asks for
vectors. Here it does all that through a client that adds `with_vectors` to its requests and
keeps what comes back, so that one trip is enough.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from sift_core.pacing import turn_of_ones_own
from sift_core.sources.qdrant import dense_vector, point_id, vectors_wanted


def keeping_vectors(store: Any) -> tuple[Any, Callable[[Sequence[str]], list[Any]]]:
    """Return a copy of a store for one query, and a function from ids to the vectors of its hits.

    Args:
        store: A QdrantVectorStore that has looked up how its collection names vectors.
    """
    copied, kept = copy.copy(store), dict[Any, Any]()
    for side in ("_client", "_aclient"):
        if (client := getattr(store, side)) is not None:
            setattr(copied, side, _Client(client, store.dense_vector_name, kept))
    if store._legacy_vector_format is None:  # it would ask again in every async query
        copied._legacy_vector_format = False
    return copied, lambda node_ids: [kept.get(point_id(node_id)) for node_id in node_ids]


class _Client:
    """A client, sync or async, that does what another one does and keeps the vectors of hits."""

    def __init__(self, client: Any, vector_name: str | None, kept: dict[Any, Any]) -> None:
        self._client = client
        self._vector_name = vector_name
        self._wanted = vectors_wanted(vector_name)
        self._vectors = kept  # by point id, which Qdrant spells its own way

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def query_points(self, **request: Any) -> Any:
        return self._kept(self._client.query_points(**request | {"with_vectors": self._wanted}))

    def query_batch_points(self, *, requests: Sequence[Any], **options: Any) -> Any:
        asking = [r.model_copy(update={"with_vector": self._wanted}) for r in requests]
        return self._kept(self._client.query_batch_points(requests=asking, **options))

    def _kept(self, found: Any) -> Any:
        """Return what a client found, or is to be awaited for, after taking the vectors off it."""
        if inspect.isawaitable(found):
            return self._akept(found)
        for response in found if isinstance(found, list) else [found]:
            for point in response.points:
                vector = dense_vector(point, vector_name=self._vector_name)
                if vector is not None:
                    self._vectors[point_id(point.id)] = vector
                point.vector = None
        return found

    async def _akept(self, coming: Awaitable[Any]) -> Any:
        found = await coming
        await turn_of_ones_own()  # several answers can be parsed in one
        return self._kept(found)
