"""Candidates from a store that keeps its vectors to itself: their texts are embedded again."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import VectorStore

from langchain_sift.candidates import Candidates, Search, store_failures

logger = logging.getLogger(__name__)


def embed_candidates(store: VectorStore, embeddings: Embeddings, search: Search) -> Candidates:
    """Return what the store finds, with the texts embedded in one batch.

    Logs a warning with the number of texts. The store embeds the question once more, since
    a search by text is the only one that every store has.

    Args:
        store: Any store.
        embeddings: The store's model.
        search: What to look for; `filter` and `options` go to `similarity_search`.

    Raises:
        CandidateSourceError: If the store fails.
    """
    with _failures(store):
        documents = store.similarity_search(search.query.text, **_arguments(search))
    if not documents:
        return _without_documents()
    _warn(store, len(documents))
    vectors = embeddings.embed_documents([document.page_content for document in documents])
    return _with_vectors(documents, vectors)


async def aembed_candidates(
    store: VectorStore, embeddings: Embeddings, search: Search
) -> Candidates:
    """Return what `embed_candidates` returns, by the store's and the model's async methods."""
    with _failures(store):
        documents = await store.asimilarity_search(search.query.text, **_arguments(search))
    if not documents:
        return _without_documents()
    _warn(store, len(documents))
    vectors = await embeddings.aembed_documents([document.page_content for document in documents])
    return _with_vectors(documents, vectors)


def _arguments(search: Search) -> dict[str, Any]:
    # Not every store has a `filter`, so none is not passed on.
    restriction = {} if search.filter is None else {"filter": search.filter}
    return {"k": search.n_candidates, **restriction, **search.options}


def _warn(store: VectorStore, n: int) -> None:
    logger.warning(
        "%s does not give its vectors back: embedding the texts of %d candidates for this query",
        type(store).__name__,
        n,
    )


def _failures(store: VectorStore) -> AbstractContextManager[None]:
    name = getattr(store, "collection_name", None)
    return store_failures(
        store,
        "its documents" if name is None else f"collection {name!r}",
        "is it reachable, and does its `similarity_search` take this filter and these options?",
    )


def _without_documents() -> Candidates:
    return Candidates(documents=[], embeddings=np.empty((0, 0)))


def _with_vectors(documents: list[Document], vectors: list[list[float]]) -> Candidates:
    return Candidates(documents=documents, embeddings=np.array(vectors, dtype=np.float64))
