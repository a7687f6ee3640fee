"""A LangChain vector store, or documents from a retriever, as `sift_core.CandidateSource`."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore

from langchain_sift.documents import SCORE_KEY, as_pool
from langchain_sift.stores import (
    ChromaReader,
    EmbeddingReader,
    InMemoryReader,
    Options,
    StoreReader,
)
from langchain_sift.vectors import VectorFiller, Vectors, VectorsById
from sift_core import CandidatePool, InvalidInputError, Query
from sift_core.plugins import run_blocking


class VectorStoreSource:
    """A LangChain vector store, seen as a function from a query to its nearest documents.

    It is a `sift_core.CandidateSource`, for instance for `sift_core.answering.AnswerEngine`.
    Chroma, Qdrant, FAISS and LangChain's in-memory store are searched with the vectors that they
    hold. Texts from any other store are embedded again, one batch a question, with a logged
    warning.

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

    Example:
        >>> source = VectorStoreSource(vectorstore)
        >>> source.fetch(query, n_candidates=2).document_ids
        ('prices', 'copy')
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

        `items` of the pool are the LangChain documents, and `metadata` is theirs. Both may be the
        store's own objects, so copy them before you change them. `scores` are the store's own,
        None if it gives none. `relevance` has the fused scores of a hybrid search.

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
        in-memory store are searched in a thread. Qdrant at a pace (`sift_core.pacing`).
        """
        return await self._reader.afetch(*self._asked(query, n_candidates, filter))

    def _asked(self, query: Query, n: int, filter: Any) -> tuple[Query, int, Any, Options]:
        if not query.vector.any():
            raise InvalidInputError(
                "the question's embedding must not be all zero: nothing is near to it; does the "
                "model know its words?"
            )
        return query, n, self._filter if filter is None else filter, self._options


@dataclass(frozen=True)
class FoundDocuments:
    """Documents that a retriever found, as a `sift_core.CandidateSource` of all of them.

    Args:
        documents: Any number.
        filler: Has their store, and fills in the vectors that the store does not give.
        relevance_key: Metadata key of an earlier reranker's scores. None disregards them.
    """

    documents: Sequence[Document]
    filler: VectorFiller
    relevance_key: str | None = SCORE_KEY

    def fetch(self, query: Query, n_candidates: int, *, filter: Any = None) -> CandidatePool:
        """Return all documents, in their order."""
        return run_blocking(self._pool(query, is_awaited=False))

    async def afetch(self, query: Query, n_candidates: int, *, filter: Any = None) -> CandidatePool:
        """Return all documents, by the async methods of model and store."""
        return await self._pool(query, is_awaited=True)

    async def _pool(self, query: Query, *, is_awaited: bool) -> CandidatePool:
        """Return the pool, with the scores that the documents came with."""
        rows: Vectors = [None] * len(self.documents)
        if self.filler.store is not None:
            reader = reader_of(self.filler.store)
            given = self.documents
            rows = await reader.avectors(given) if is_awaited else reader.vectors(given)
        rows = await self.filler.fill(self.documents, rows, is_awaited=is_awaited)
        key = self.relevance_key
        ranked = [_number(document.metadata.get(key)) for document in self.documents]
        scores = [
            _retrievers_score(document) if score is None else score
            for document, score in zip(self.documents, ranked, strict=True)
        ]
        is_ranked = key is not None and None not in ranked
        relevance = np.array(ranked, dtype=np.float64) if is_ranked else None
        return as_pool(query, self.documents, rows, scores=scores, relevance=relevance)


def _retrievers_score(document: Document) -> float | None:
    """Return the store's score that `SIFTRetriever` has kept; None if it was not there before."""
    explanation = document.metadata.get("sift")
    return _number(explanation.get("score")) if isinstance(explanation, dict) else None


def _number(value: Any) -> float | None:
    """Return the value if it is a finite number, else None."""
    is_number = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if is_number else None


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
        return ChromaReader(store)
    return InMemoryReader(store) if isinstance(store, InMemoryVectorStore) else None


def _is_a(store: object, module: str, name: str) -> bool:
    """Tell whether `store` is of an optional class, which is loaded if it is."""
    return isinstance(store, getattr(sys.modules.get(module), name, ()))
