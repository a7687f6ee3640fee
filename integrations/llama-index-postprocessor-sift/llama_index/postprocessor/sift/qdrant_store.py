"""A Qdrant store for one query whose hits bring their vectors along.

`QdrantVectorStore` builds filters, hybrid searches and shard keys itself, but never asks for
vectors. Here it does all that through a client that adds `with_vectors` to its requests and
keeps what comes back, so that one trip is enough.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Awaitable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sift_core.pacing import turn_of_ones_own
from sift_core.sources.qdrant import dense_vector, point_id, vectors_wanted


class VectorHits:
    """The dense vectors of the hits of one query.

    Args:
        store: A QdrantVectorStore that has looked up how its collection names vectors. Not changed.
    """

    def __init__(self, store: Any) -> None:
        self.store = copy.copy(store)
        if store._client is not None:
            self.store._client = _Client(store._client, self)
        if store._aclient is not None:
            self.store._aclient = _Client(store._aclient, self)
        if store._legacy_vector_format is None:  # it would ask again in every async query
            self.store._legacy_vector_format = False
        self._by_point: dict[int | str | None, npt.NDArray[np.float32]] = {}

    def vectors_of(self, node_ids: Iterable[str]) -> list[npt.NDArray[np.float32] | None]:
        """Return the vectors that came along, shape (d,) each; Qdrant spells ids its own way."""
        return [self._by_point.get(point_id(node_id)) for node_id in node_ids]

    def keep(self, points: Iterable[Any]) -> None:
        """Take the vectors off the points, which then become nodes without them."""
        for point in points:
            vector = dense_vector(point, vector_name=self.store.dense_vector_name)
            if vector is not None:
                self._by_point[point_id(point.id)] = vector
            point.vector = None


class _Client:
    """A client, sync or async, that does what another one does and keeps the vectors of hits."""

    def __init__(self, client: Any, hits: VectorHits) -> None:
        self._client = client
        self._hits = hits
        self._wanted = vectors_wanted(hits.store.dense_vector_name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def query_points(self, **request: Any) -> Any:
        return self._kept(self._client.query_points(**request | {"with_vectors": self._wanted}))

    def query_batch_points(self, *, requests: Sequence[Any], **options: Any) -> Any:
        asking = [r.model_copy(update={"with_vector": self._wanted}) for r in requests]
        return self._kept(self._client.query_batch_points(requests=asking, **options))

    def _kept(self, found: Any) -> Any:
        """Return what a client found, or is to be awaited for, after keeping the vectors."""
        if inspect.isawaitable(found):
            return self._akept(found)
        for response in found if isinstance(found, list) else [found]:
            self._hits.keep(response.points)
        return found

    async def _akept(self, coming: Awaitable[Any]) -> Any:
        found = await coming
        await turn_of_ones_own()  # several answers can be parsed in one
        return self._kept(found)
