"""Reads vectors out of LlamaIndex's vector stores by node id, without embedding anything.

A store that does not have a node simply leaves it out; a store that fails raises.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from llama_index.core import VectorStoreIndex
from llama_index.core.vector_stores import SimpleVectorStore

from llama_index.postprocessor.sift.faiss_vectors import faiss_vectors
from llama_index.postprocessor.sift.qdrant_vectors import (
    point_ids,
    qdrant_request,
    vectors_of_records,
)
from sift_core import CandidateSourceError, SiftError, paced

Vector: TypeAlias = npt.NDArray[np.floating[Any]]
StoreKind: TypeAlias = Literal["simple", "faiss", "faiss map", "qdrant", "other"]


def stored_vectors(index: VectorStoreIndex, node_ids: Sequence[str]) -> Mapping[str, Vector]:
    """Return the stored vector of every node that the index's store has, by node id.

    One call to the store, O(nodes asked for); see `faiss_vectors` for Faiss, which must read
    all ids of an index once. Stores of other kinds give nothing.

    Raises:
        CandidateSourceError: If the store fails.
    """
    store: Any = index.vector_store
    kind = store_kind(store)
    with failures_of(store, f"return the vectors of {len(node_ids)} nodes"):
        if kind == "simple":
            known = store.data.embedding_dict
            return _as_vectors((i, store.get(i)) for i in node_ids if i in known)
        if kind == "faiss" or kind == "faiss map":
            return faiss_vectors(index, node_ids, is_map=kind == "faiss map")
        if kind == "qdrant" and store.client is not None:  # None: made for async use alone
            points = point_ids(node_ids)
            records = store.client.retrieve(**qdrant_request(store, points))
            return _as_vectors(vectors_of_records(store, points, records))
    return {}


async def astored_vectors(
    index: VectorStoreIndex, node_ids: Sequence[str], *, dimension: int
) -> Mapping[str, Vector]:
    """Return what `stored_vectors` does, without blocking the event loop.

    Args:
        index: Whose store is asked.
        node_ids: What for.
        dimension: d of the vectors, for the pace at which Qdrant is asked.
    """
    store: Any = index.vector_store
    kind = store_kind(store)
    if kind == "other":
        return {}
    if kind != "qdrant":
        return await asyncio.to_thread(stored_vectors, index, node_ids)
    async with paced(len(node_ids), dimension):
        if store._aclient is None:  # no public accessor
            return await asyncio.to_thread(stored_vectors, index, node_ids)
        with failures_of(store, f"return the vectors of {len(node_ids)} nodes"):
            points = point_ids(node_ids)
            records = await store._aclient.retrieve(**qdrant_request(store, points))
        return _as_vectors(vectors_of_records(store, points, records))


def store_kind(store: object) -> StoreKind:
    """Return which of the stores that give vectors back this is, or "other"."""
    if isinstance(store, SimpleVectorStore):
        return "simple"
    if _is_a(store, "llama_index.vector_stores.faiss", "FaissMapVectorStore"):
        return "faiss map"
    if _is_a(store, "llama_index.vector_stores.faiss", "FaissVectorStore"):
        return "faiss"
    if _is_a(store, "llama_index.vector_stores.qdrant", "QdrantVectorStore"):
        return "qdrant"
    return "other"


@contextmanager
def failures_of(store: object, task: str) -> Iterator[None]:
    """Turn whatever a store raises into a `CandidateSourceError` that says what it failed at."""
    try:
        yield
    except SiftError:
        raise
    except Exception as error:  # each store has exceptions of its own; none is swallowed
        collection = getattr(store, "collection_name", "")
        reason = str(error) or type(error).__name__
        raise CandidateSourceError(
            f"{type(store).__name__} {collection!r} could not {task}: {reason}; is it up, and "
            f"does it still hold what was retrieved?"
        ) from error


def _as_vectors(pairs: Iterable[tuple[str, Any]]) -> dict[str, Vector]:
    return {node_id: np.asarray(vector, dtype=np.float64) for node_id, vector in pairs}


def _is_a(store: object, module: str, name: str) -> bool:
    """Return whether `store` is of a class whose package need not be installed."""
    store_class = getattr(sys.modules.get(module), name, None)  # loaded, if it has objects
    return store_class is not None and isinstance(store, store_class)
