"""What each kind of vector store can do: give vectors back, and heed the options of a search."""

from __future__ import annotations

import asyncio
import sys
import weakref
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from llama_index.core import VectorStoreIndex
from llama_index.core.retrievers import VectorIndexRetriever
from llama_index.core.vector_stores.types import VectorStoreQueryMode

from sift_core import CandidateSourceError, InvalidInputError
from sift_core.pacing import paced

Matrix: TypeAlias = npt.NDArray[np.floating[Any]]

# One vector a node. A node without a vector has None; a matrix holds the vectors of all nodes.
Vectors: TypeAlias = Matrix | Sequence[Any]

# From a list of node ids to a mapping of ids to vectors; ids without a vector are left out.
VectorsById: TypeAlias = Callable[[list[str]], Mapping[str, Any]]


class Store:
    """The vector store of an index: here of a kind that gives no vectors back."""

    gives_vectors: bool = False
    is_empty: bool = False  # and fails if it is searched then
    is_awaited: bool = True  # rather than asked in a thread, where a search is awaited
    # Options of a search that it takes and does not look at, or refuses in every query.
    ignored: tuple[str, ...] = ()
    # By what it searches, or else refuses to by itself.
    modes: Collection[VectorStoreQueryMode] = tuple(VectorStoreQueryMode)

    def __init__(self, index: VectorStoreIndex) -> None:
        self.index = index
        self.store: Any = index.vector_store

    @property
    def name(self) -> str:
        """Kind of the store, and the name of its collection where it has one."""
        collection = getattr(self.store, "collection_name", None)
        return type(self.store).__name__ + (f" {collection!r}" if collection else "")

    def vectors(self, node_ids: Sequence[str]) -> Vectors:
        """Return the stored vector of each node, None where the store does not have it.

        One call to the store, O(nodes asked for).

        Raises:
            CandidateSourceError: If the store fails, or lacks rows that the index says it has.
        """
        return [None] * len(node_ids)

    async def avectors(self, node_ids: Sequence[str], *, dimension: int) -> Vectors:
        """Return what `vectors` does, without blocking the event loop.

        `dimension` is d of the vectors, for the pace at which Qdrant is asked.
        """
        return await asyncio.to_thread(self.vectors, node_ids)

    def check_query(self, dimension: int) -> None:
        """Refuse a search by a vector of so many numbers that it cannot do in this thread.

        Raises:
            InvalidInputError: Where it cannot.
        """

    def prepare(self, retriever: VectorIndexRetriever) -> Callable[[Sequence[str]], Vectors]:
        """Prepare a retriever for one search; return a function that has its hits' vectors."""
        return self.vectors

    @asynccontextmanager
    async def turn(self, n: int, dimension: int) -> AsyncIterator[None]:
        """Wait until n nodes may be searched for by one whose search is awaited."""
        yield


class SimpleStore(Store):
    """A SimpleVectorStore, which has its vectors in memory."""

    gives_vectors: bool = True
    is_awaited: bool = False
    ignored: tuple[str, ...] = ("doc_ids", "alpha", "sparse_top_k", "hybrid_top_k")

    def vectors(self, node_ids: Sequence[str]) -> Vectors:
        """Return the stored vector of each node."""
        return [self.store.data.embedding_dict.get(node_id) for node_id in node_ids]

    def prepare(self, retriever: VectorIndexRetriever) -> Callable[[Sequence[str]], Vectors]:
        """Leave out nodes of other indexes, which the store may hold, as `as_retriever` does."""
        if retriever._node_ids is None:
            retriever._node_ids = list(self.index.index_struct.nodes_dict.values())
        return self.vectors


class FaissStore(Store):
    """A FaissVectorStore, which has row numbers and no node ids.

    The first call of `vectors` for an index, and one after nodes were added to it, also reads
    all its ids, some 10 ms for 100,000, and keeps a dictionary of them as long as the index lives.
    """

    gives_vectors: bool = True
    is_awaited: bool = False
    ignored: tuple[str, ...] = (
        "filters",
        "node_ids",
        "doc_ids",
        "alpha",
        "sparse_top_k",
        "hybrid_top_k",
    )
    modes: Collection[VectorStoreQueryMode] = (VectorStoreQueryMode.DEFAULT,)

    @property
    def is_empty(self) -> bool:  # type: ignore[override]
        """Whether it has no vector: LlamaIndex 0.13 fails over it."""
        return bool(self.store.client.ntotal == 0)

    def vectors(self, node_ids: Sequence[str]) -> Vectors:
        """Return the stored vector of each node."""
        from sift_core.sources.faiss import stored_vectors

        rows = self._rows(node_ids)
        found: Matrix = stored_vectors(self.store.client, [row for row in rows if row is not None])
        if len(found) == len(rows):
            return found
        each = iter(found)
        return [None if row is None else next(each) for row in rows]

    def check_query(self, dimension: int) -> None:
        """Refuse a query of another length than the vectors."""
        if dimension != self.store.client.d:
            raise InvalidInputError(
                f"the query's embedding must have {self.store.client.d} numbers like the vectors "
                f"in the Faiss index, got {dimension}; were both made by one model?"
            )

    def _rows(self, node_ids: Sequence[str]) -> list[int | None]:
        """Return the rows that mean these nodes according to the index itself."""
        nodes_dict: dict[str, str] = self.index.index_struct.nodes_dict
        n_rows, by_node_id = _rows_by_index.get(self.index, (None, {}))
        if n_rows != len(nodes_dict):
            copied = nodes_dict.copy()  # another thread may be adding nodes
            by_node_id = {node_id: row for row, node_id in copied.items()}
            _rows_by_index[self.index] = len(copied), by_node_id
        rows: list[Any] = list(map(by_node_id.get, node_ids))
        meant = map(nodes_dict.get, rows)
        return [
            int(row) if now == node_id else None
            for row, now, node_id in zip(rows, meant, node_ids, strict=True)
        ]


# The rows of a FaissVectorStore by node id, and how many there were. Rows are never removed.
_rows_by_index: weakref.WeakKeyDictionary[VectorStoreIndex, tuple[int, dict[str, str]]]
_rows_by_index = weakref.WeakKeyDictionary()


class FaissMapStore(FaissStore):
    """A FaissMapVectorStore, which has node ids as well.

    It may give a deleted vector's successor an id that is in use (seen in 0.7.0); the way
    back then leads to another node.
    """

    def _rows(self, node_ids: Sequence[str]) -> list[int | None]:
        """Return the Faiss ids that still mean their node."""
        back = self.store._faiss_id_to_node_id_map
        rows = map(self.store._node_id_to_faiss_id_map.get, node_ids)
        return [row if back.get(row) == i else None for row, i in zip(rows, node_ids, strict=True)]


class QdrantStore(Store):
    """A QdrantVectorStore, which sends vectors along with the hits."""

    gives_vectors: bool = True

    def __init__(self, index: VectorStoreIndex) -> None:
        super().__init__(index)
        self.is_awaited = self.store._aclient is not None  # no public accessor
        hybrid = (VectorStoreQueryMode.HYBRID, VectorStoreQueryMode.SPARSE)
        self.modes = (VectorStoreQueryMode.DEFAULT, *(hybrid if self.store.enable_hybrid else ()))
        self._knows_names = False

    def vectors(self, node_ids: Sequence[str]) -> Vectors:
        """Return the stored vector of each node. Without a sync client each is None."""
        from sift_core.sources.qdrant import stored_vectors

        if self.store.client is None:
            return super().vectors(node_ids)
        name = self.store.dense_vector_name
        return stored_vectors(
            self.store.client, self.store.collection_name, node_ids, vector_name=name
        )

    async def avectors(self, node_ids: Sequence[str], *, dimension: int) -> Vectors:
        """Return what `vectors` does."""
        from sift_core.sources.qdrant import astored_vectors

        return await astored_vectors(
            self.store._aclient or self.store.client,
            self.store.collection_name,
            node_ids,
            vector_name=self.store.dense_vector_name,
            dimension=dimension,
        )

    def check_query(self, dimension: int) -> None:
        """Refuse any where the only client is async."""
        if self.store._client is None:
            raise InvalidInputError(
                "this QdrantVectorStore has an async client alone; await the retriever "
                "(aretrieve, aquery), or give the store a `client` as well as its `aclient`"
            )

    def prepare(self, retriever: VectorIndexRetriever) -> Callable[[Sequence[str]], Vectors]:
        """Ask for vectors as well; a hit without one has none in the store either."""
        from llama_index.postprocessor.sift.qdrant_store import keeping_vectors

        retriever._vector_store, vectors_of = keeping_vectors(self.store)
        return vectors_of

    @asynccontextmanager
    async def turn(self, n: int, dimension: int) -> AsyncIterator[None]:
        """Wait for a pace (`sift_core.pacing`) at which answers do not block the event loop."""
        async with paced(n, dimension):
            if self.is_awaited and not self._knows_names:  # else it asks in every query
                if self.store._legacy_vector_format is None:
                    await self.store._adetect_vector_format(self.store.collection_name)
                self._knows_names = True
            yield


class ChromaStore(Store):
    """A ChromaVectorStore, which searches without an async side."""

    gives_vectors: bool = True
    is_awaited: bool = False
    ignored: tuple[str, ...] = ("node_ids", "doc_ids", "alpha", "sparse_top_k", "hybrid_top_k")
    modes: Collection[VectorStoreQueryMode] = (VectorStoreQueryMode.DEFAULT,)

    def vectors(self, node_ids: Sequence[str]) -> Vectors:
        """Return the stored vector of each node."""
        try:
            found = self.store.client.get(ids=list(dict.fromkeys(node_ids)), include=["embeddings"])
        except Exception as error:  # Chroma's share no ancestor
            raise CandidateSourceError(
                f"{self.name} could not look up {len(node_ids)} vectors: {error!r}; is it up?"
            ) from error
        rows = dict(zip(found["ids"], found["embeddings"], strict=True))
        return [rows.get(node_id) for node_id in node_ids]


# Most special first. By name, since their packages need not be installed.
_KINDS: dict[str, type[Store]] = {
    "llama_index.core.vector_stores.SimpleVectorStore": SimpleStore,
    "llama_index.vector_stores.chroma.ChromaVectorStore": ChromaStore,
    "llama_index.vector_stores.faiss.FaissMapVectorStore": FaissMapStore,
    "llama_index.vector_stores.faiss.FaissVectorStore": FaissStore,
    "llama_index.vector_stores.qdrant.QdrantVectorStore": QdrantStore,
}


def store_of(index: VectorStoreIndex) -> Store:
    """Return the vector store of an index, by its kind."""
    for path, kind in _KINDS.items():
        module, _, name = path.rpartition(".")
        store_class = getattr(sys.modules.get(module), name, None)  # loaded, if it has objects
        if store_class is not None and isinstance(index.vector_store, store_class):
            return kind(index)
    return Store(index)
