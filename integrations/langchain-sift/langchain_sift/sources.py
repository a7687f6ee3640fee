"""A LangChain vector store as `sift_core.CandidateSource`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.documents import Document
from langchain_core.runnables import run_in_executor
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore

from langchain_sift.documents import (
    VectorsById,
    as_ranked_pool,
    texts_without_vector,
    with_given,
)
from langchain_sift.embedder import LangChainEmbedder, aembedded_once, embedded_once
from langchain_sift.stores import EmbeddingReader, InMemoryReader, Options, StoreReader, name_of
from sift_core import CandidatePool, Embedder, InvalidInputError, Query


class VectorStoreSource:
    """A LangChain vector store, seen as a function from a query to its nearest documents.

    Whoever takes a `sift_core.CandidateSource` takes this one, `sift_core.answering`'s
    `AnswerEngine` for instance. Qdrant, FAISS and LangChain's in-memory store are searched
    with the vectors that they hold; from any other store texts are embedded again, one batch
    a question, with a logged warning.

    Args:
        vectorstore: Any LangChain vector store.
        search_kwargs: Arguments of every search in the store's own words. A "filter" among
            them holds where a call gives none. "k" and "fetch_k" are refused: `fetch` says how
            many.
        async_client: An `AsyncQdrantClient` of the same server, which `afetch` uses instead
            of a thread; for a `QdrantVectorStore` with dense vectors alone.
        vectors: Looks up vectors by id, as in `sift_core.vectors_by_id`, for a store that gives
            none.

    Raises:
        InvalidInputError: If a setting cannot be used, or the texts would have to be embedded
            again and the store does not know its model.
    """

    def __init__(
        self,
        vectorstore: VectorStore,
        search_kwargs: Mapping[str, Any] | None = None,
        *,
        async_client: Any = None,
        vectors: VectorsById | None = None,
    ) -> None:
        self._options = dict(search_kwargs or {})
        self._filter = self._options.pop("filter", None)
        refused = sorted(self._options.keys() & {"k", "fetch_k", "lambda_mult"})
        if refused:
            raise InvalidInputError(
                f"`search_kwargs` of a source must not hold {refused}: `fetch` says how many "
                f"candidates, and SIFT has no `lambda_mult`; leave them out"
            )
        self._reader = reader_of(vectorstore, async_client, vectors)
        self.vectorstore = vectorstore

    def fetch(self, query: Query, n_candidates: int, *, filter: Any = None) -> CandidatePool:
        """Return the store's nearest documents with their embeddings, nearest first.

        Each row's `metadata` holds "document", the LangChain `Document`, which may be the
        store's own object (copy it before you change it), and "score", the store's own,
        where it gives one. `relevance` holds the fused scores of a hybrid search.

        Args:
            query: What to look for.
            n_candidates: How many at most, >= 1. A smaller store returns all it has.
            filter: The store's own kind of filter; None for that of `search_kwargs`.

        Raises:
            CandidateSourceError: If the store fails.
            InvalidInputError: If query, filter or options and store do not fit together.
        """
        return self._reader.fetch(*self._asked(query, n_candidates, filter))

    async def afetch(self, query: Query, n_candidates: int, *, filter: Any = None) -> CandidatePool:
        """Return what `fetch` returns, without blocking the event loop.

        By async methods where the store has them; Qdrant without `async_client`, FAISS and the
        in-memory store are searched in a thread. Qdrant at a pace (`sift_core.paced`).
        """
        return await self._reader.afetch(*self._asked(query, n_candidates, filter))

    def _asked(self, query: Query, n: int, filter: Any) -> tuple[Query, int, Any, Options]:
        if not query.vector.any():
            raise InvalidInputError(
                "the question's embedding must not be all zero: nothing is near to it; does the "
                "model know its words?"
            )
        return query, n, self._filter if filter is None else filter, self._options


def pool_of(
    query: Query,
    documents: Sequence[Document],
    store: VectorStore | None,
    embedder: Embedder,
    relevance_key: str | None,
    given: VectorsById | None = None,
) -> CandidatePool:
    """Return documents that were found already as a pool.

    Vectors come from the store by document id; the texts of the rest are embedded in one
    batch, with a logged warning that says how many.

    Args:
        query: What was asked.
        documents: One at least.
        store: Where documents come from; None if no vectors are stored.
        embedder: For the rest.
        relevance_key: Key of an earlier reranker's scores in the metadata, or None.
        given: Looks up by id what the store does not give.

    Raises:
        CandidateSourceError: If the store fails.
        InvalidInputError: If a vector is not finite, or its dimension is not the question's.
    """
    nothing = [None] * len(documents)
    vectors = nothing if store is None else reader_of(store).vectors(documents)
    vectors = with_given(documents, vectors, given)
    texts = texts_without_vector(documents, vectors, name_of(store))
    embedded = embedded_once(embedder, texts)
    return as_ranked_pool(query, documents, vectors, embedded, relevance_key)


async def apool_of(
    query: Query,
    documents: Sequence[Document],
    store: VectorStore | None,
    embedder: LangChainEmbedder,
    relevance_key: str | None,
    given: VectorsById | None = None,
) -> CandidatePool:
    """Return what `pool_of` returns, by the model's and the store's async methods."""
    nothing = [None] * len(documents)
    vectors = nothing if store is None else await reader_of(store).avectors(documents)
    if given is not None:
        vectors = await run_in_executor(None, with_given, documents, vectors, given)
    texts = texts_without_vector(documents, vectors, name_of(store))
    embedded = await aembedded_once(embedder, texts)
    return as_ranked_pool(query, documents, vectors, embedded, relevance_key)


def reader_of(
    store: VectorStore, async_client: Any = None, vectors: VectorsById | None = None
) -> StoreReader:
    """Return what reads a store's candidates and vectors; arguments as of `VectorStoreSource`."""
    reader = _own_reader_of(store, async_client)
    if reader is None:
        return EmbeddingReader(store, vectors)
    if vectors is not None:
        raise InvalidInputError(
            f"`vectors` is for stores that do not give their vectors, got {type(store).__name__}; "
            f"leave it out"
        )
    return reader


def _own_reader_of(store: VectorStore, async_client: Any) -> StoreReader | None:
    """Return what reads a store with its vectors; None where there is no such reader."""
    if _is_a(store, "langchain_qdrant.qdrant", "QdrantVectorStore"):
        mode: Any = store.retrieval_mode  # type: ignore[attr-defined]  # optional class
        if mode.value != "sparse":  # which has no dense vectors to give
            from langchain_sift.qdrant_store import QdrantReader

            return QdrantReader(store, async_client)
    if async_client is not None:
        raise InvalidInputError(
            f"`async_client` is for a QdrantVectorStore with dense vectors, got "
            f"{type(store).__name__}; leave it out"
        )
    if _is_a(store, "langchain_community.vectorstores.faiss", "FAISS"):
        from langchain_sift.faiss_store import FaissReader

        return FaissReader(store)
    if _is_a(store, "langchain_chroma.vectorstores", "Chroma"):
        from langchain_sift.chroma_store import ChromaReader

        return ChromaReader(store)
    return InMemoryReader(store) if isinstance(store, InMemoryVectorStore) else None


def _is_a(store: object, module: str, name: str) -> bool:
    """Tell whether `store` is of an optional class, which is loaded if it is."""
    return isinstance(store, getattr(sys.modules.get(module), name, ()))
