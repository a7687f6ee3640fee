"""LangChain's in-memory store, and any store that keeps its vectors to itself."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

import numpy as np
from langchain_core.documents import Document
from langchain_core.vectorstores import VectorStore

from langchain_sift.documents import as_pool
from langchain_sift.embedder import LangChainEmbedder, embeddings_of
from langchain_sift.store_reader import FloatArray, Search, StoreReader, Vectors
from sift_core import CandidatePool

logger = logging.getLogger(__name__)

Hits: TypeAlias = Sequence[tuple[Document, float | None]]


class InMemoryReader(StoreReader):
    """Reads an `InMemoryVectorStore`. A filter is called with a `Document`; no options."""

    def fetch(self, search: Search) -> CandidatePool:
        """Return the nearest documents by cosine."""
        self.refuse_options(set(search.options))
        self.check_filter(
            search.filter,
            is_of_its_kind=callable(search.filter),
            kind="a function of a document",
        )
        with self.failures(
            f"its {len(self._store.store)} documents",
            "are query and documents embedded by one model, and is the filter right?",
        ):
            hits = self._store.similarity_search_with_score_by_vector(
                search.query.vector.tolist(), k=search.n_candidates, filter=search.filter
            )
            rows = [self._store.store[str(document.id)]["vector"] for document, _ in hits]
        return _pool(search, hits, np.array(rows))

    def vectors(self, documents: Sequence[Document]) -> Vectors:
        """Return the vectors of documents."""
        held = [self._store.store.get(document.id) for document in documents]
        return [
            None if entry is None or entry["text"] != document.page_content else entry["vector"]
            for document, entry in zip(documents, held, strict=True)
        ]


class EmbeddingReader(StoreReader):
    """Searches any store by text and embeds what it finds in one batch, with a logged warning.

    The store embeds the question once more, since a search by text is the only one that every
    store has. Scores come along where the store has a search that gives them. Filter and
    options go to the store's search.

    Raises:
        InvalidInputError: If the store does not know its embedding model.
    """

    gives_vectors = False

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self._embedder = LangChainEmbedder(embeddings_of(store))
        with_score = type(store).similarity_search_with_score
        self._gives_scores = with_score is not VectorStore.similarity_search_with_score  # raises

    def fetch(self, search: Search) -> CandidatePool:
        """Return what the store finds."""
        text, arguments = search.query.text, _arguments(search)
        hits: Hits
        with self._failures():
            if self._gives_scores:
                hits = self._store.similarity_search_with_score(text, **arguments)
            else:
                hits = [(d, None) for d in self._store.similarity_search(text, **arguments)]
        texts = self._texts(hits)
        return _pool(search, hits, self._embedder.embed_documents(texts) if texts else None)

    async def afetch(self, search: Search) -> CandidatePool:
        """Return what `fetch` returns, by the store's and the model's async methods."""
        text, arguments = search.query.text, _arguments(search)
        hits: Hits
        with self._failures():
            if self._gives_scores:
                hits = await self._store.asimilarity_search_with_score(text, **arguments)
            else:
                found = await self._store.asimilarity_search(text, **arguments)
                hits = [(document, None) for document in found]
        texts = self._texts(hits)
        return _pool(search, hits, await self._embedder.aembed_documents(texts) if texts else None)

    def vectors(self, documents: Sequence[Document]) -> Vectors:
        """Return None for each document."""
        return [None] * len(documents)

    def _texts(self, hits: Hits) -> list[str]:
        if hits:
            logger.warning(
                "%s does not give its vectors back: embedding the texts of %d candidates for "
                "this query",
                type(self._store).__name__,
                len(hits),
            )
        return [document.page_content for document, _ in hits]

    def _failures(self) -> AbstractContextManager[None]:
        name = getattr(self._store, "collection_name", None)
        return self.failures(
            "its documents" if name is None else f"collection {name!r}",
            "is it reachable, and does its `similarity_search` take this filter and these options?",
        )


def _arguments(search: Search) -> dict[str, Any]:
    # Not every store has a `filter`, so none is not passed on.
    restriction = {} if search.filter is None else {"filter": search.filter}
    return {"k": search.n_candidates, **restriction, **search.options}


def _pool(search: Search, hits: Hits, embeddings: FloatArray | None) -> CandidatePool:
    return as_pool(
        search.query,
        [_with_id(document) for document, _ in hits],
        np.empty((0, 0)) if embeddings is None else embeddings,
        scores=[score for _, score in hits],
    )


def _with_id(document: Document) -> Document:
    """Return a document with its id in `id`; a sparse Qdrant store has it in metadata."""
    if document.id is None and document.metadata.get("_id") is not None:
        return document.model_copy(update={"id": str(document.metadata["_id"])})
    return document
