"""Reads vectors out of LlamaIndex's vector stores by node id, without embedding anything.

A store that does not have a node simply leaves it out; a store that fails raises.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from llama_index.core import VectorStoreIndex
from llama_index.core.vector_stores import SimpleVectorStore

from sift_core import CandidateSourceError

Vector: TypeAlias = npt.NDArray[np.float64]

_logger = logging.getLogger(__name__)

# What Faiss says where an index type cannot give its vectors back, as opposed to failing.
_FAISS_CANNOT = ("reconstruct not implemented", "direct map not initialized")


def stored_vectors(index: VectorStoreIndex, node_ids: Sequence[str]) -> dict[str, Vector]:
    """Return the stored vector of every node that the index's store has, by node id.

    One call to the store. Faiss knows row numbers alone, so it costs a scan of the
    index's ids, O(documents). Stores of other kinds give nothing.

    Raises:
        CandidateSourceError: If the store fails.
    """
    store: Any = index.vector_store
    with _failures_of(store, len(node_ids)):
        if isinstance(store, SimpleVectorStore):
            known = store.data.embedding_dict
            return _as_vectors((i, store.get(i)) for i in node_ids if i in known)
        if _is_a(store, "llama_index.vector_stores.faiss", "FaissVectorStore"):
            return _from_faiss(store, index.index_struct.nodes_dict, node_ids)
        if _is_a(store, "llama_index.vector_stores.qdrant", "QdrantVectorStore"):
            if store.client is None:  # made for async use alone
                return {}
            points = _point_ids(node_ids)
            records = store.client.retrieve(**_qdrant_request(store, points))
            return _as_vectors(_from_records(store, points, records))
    return {}


async def astored_vectors(index: VectorStoreIndex, node_ids: Sequence[str]) -> dict[str, Vector]:
    """Return what `stored_vectors` does, awaiting the one store that lies across a network."""
    store: Any = index.vector_store
    if not _is_a(store, "llama_index.vector_stores.qdrant", "QdrantVectorStore"):
        return stored_vectors(index, node_ids)
    if store._aclient is None:  # no public accessor
        return await asyncio.to_thread(stored_vectors, index, node_ids)
    with _failures_of(store, len(node_ids)):
        points = _point_ids(node_ids)
        records = await store._aclient.retrieve(**_qdrant_request(store, points))
        return _as_vectors(_from_records(store, points, records))


def _qdrant_request(store: Any, points: Mapping[str | int, str]) -> dict[str, Any]:
    name = store.dense_vector_name
    return {
        "collection_name": store.collection_name,
        "ids": list(points),
        "with_payload": False,
        "with_vectors": [name] if name else True,  # "" is the unnamed vector
    }


def _from_records(
    store: Any, points: Mapping[str | int, str], records: Iterable[Any]
) -> Iterator[tuple[str, Any]]:
    """Yield node id and dense vector; named vectors come in a dict, unnamed ones bare."""
    for record in records:
        vector = record.vector
        if isinstance(vector, dict):
            vector = vector.get(store.dense_vector_name)
        if vector is not None:
            yield points[_point_id(str(record.id))], vector


def _point_ids(node_ids: Iterable[str]) -> dict[str | int, str]:
    """Return the node ids that can be a point's, by point id: Qdrant refuses all others."""
    return {point: node_id for node_id in node_ids if (point := _point_id(node_id)) != ""}


def _point_id(node_id: str) -> str | int:
    """Return a node id as Qdrant spells it, a UUID or a number; "" if it is neither."""
    if node_id.isascii() and node_id.isdecimal():
        return int(node_id)
    try:
        return str(uuid.UUID(node_id))
    except ValueError:
        return ""


def _from_faiss(
    store: Any, nodes_dict: Mapping[str, str], node_ids: Sequence[str]
) -> dict[str, Vector]:
    faiss_index = store.client
    if _is_a(store, "llama_index.vector_stores.faiss", "FaissMapVectorStore"):
        rows = _mapped_rows(store, node_ids)
    else:
        wanted = set(node_ids)
        rows = {node_id: int(row) for row, node_id in nodes_dict.items() if node_id in wanted}
        # Faiss reads outside its memory when asked for a row that it does not have.
        rows = {i: row for i, row in rows.items() if 0 <= row < faiss_index.ntotal}
    if not rows:
        return {}
    try:
        vectors = faiss_index.reconstruct_batch(np.array(list(rows.values()), dtype=np.int64))
    except RuntimeError as error:
        if not any(reason in str(error) for reason in _FAISS_CANNOT):
            raise
        _logger.warning(
            "Faiss %s cannot give its vectors back; call its make_direct_map() once, or "
            "build an IndexIDMap2 instead of an IndexIDMap",
            type(faiss_index).__name__,
        )
        return {}
    return _as_vectors(zip(rows, vectors, strict=True))


def _mapped_rows(store: Any, node_ids: Sequence[str]) -> dict[str, int]:
    """Return the Faiss ids that still mean their node.

    FaissMapVectorStore may give a deleted vector's successor an id that is in use
    (seen in 0.7.0); the way back then leads to another node.
    """
    forward, back = store._node_id_to_faiss_id_map, store._faiss_id_to_node_id_map
    return {i: forward[i] for i in node_ids if i in forward and back.get(forward[i]) == i}


def _as_vectors(pairs: Iterable[tuple[str, Any]]) -> dict[str, Vector]:
    return {node_id: np.asarray(vector, dtype=np.float64) for node_id, vector in pairs}


def _is_a(store: object, module: str, name: str) -> bool:
    """Return whether `store` is of a class whose package need not be installed."""
    store_class = getattr(sys.modules.get(module), name, None)  # loaded, if it has objects
    return store_class is not None and isinstance(store, store_class)


@contextmanager
def _failures_of(store: object, n_nodes: int) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # each store has exceptions of its own; none is swallowed
        collection = getattr(store, "collection_name", "")
        raise CandidateSourceError(
            f"{type(store).__name__} {collection!r} could not return the vectors of "
            f"{n_nodes} nodes: {error}; is it up, and does it still hold what was retrieved?"
        ) from error
