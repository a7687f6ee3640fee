"""Candidates from a store that keeps its vectors to itself: their texts are embedded again."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from langchain_core.documents import Document
from langchain_core.vectorstores import VectorStore

from langchain_sift.candidates import Candidates, FloatArray, Search, store_failures
from langchain_sift.embedder import LangChainEmbedder

logger = logging.getLogger(__name__)


def embed_candidates(store: VectorStore, embedder: LangChainEmbedder, search: Search) -> Candidates:
    """Return what the store finds, with the texts embedded in one batch.

    Logs a warning with the number of texts. The store embeds the question once more, since
    a search by text is the only one that every store has. Scores come along where the store
    has a search that gives them.

    Args:
        store: Any store.
        embedder: The store's model.
        search: What to look for; `filter` and `options` go to the store's search.

    Raises:
        CandidateSourceError: If the store fails.
    """
    text, arguments = search.query.text, _arguments(search)
    with _failures(store):
        if _gives_scores(store):
            hits = _split(store.similarity_search_with_score(text, **arguments))
        else:
            hits = (store.similarity_search(text, **arguments), None)
    if not hits[0]:
        return _candidates(hits, np.empty((0, 0)))
    _warn(store, len(hits[0]))
    return _candidates(hits, embedder.embed_documents([each.page_content for each in hits[0]]))


async def aembed_candidates(
    store: VectorStore, embedder: LangChainEmbedder, search: Search
) -> Candidates:
    """Return what `embed_candidates` returns, by the store's and the model's async methods."""
    text, arguments = search.query.text, _arguments(search)
    with _failures(store):
        if _gives_scores(store):
            hits = _split(await store.asimilarity_search_with_score(text, **arguments))
        else:
            hits = (await store.asimilarity_search(text, **arguments), None)
    if not hits[0]:
        return _candidates(hits, np.empty((0, 0)))
    _warn(store, len(hits[0]))
    texts = [each.page_content for each in hits[0]]
    return _candidates(hits, await embedder.aembed_documents(texts))


Hits = tuple[list[Document], list[float] | None]


def _gives_scores(store: VectorStore) -> bool:
    """Tell whether the store has a search with scores: the inherited one only raises."""
    mine: Any = type(store).similarity_search_with_score
    return mine is not VectorStore.similarity_search_with_score


def _split(hits: list[tuple[Document, float]]) -> Hits:
    return [document for document, _ in hits], [score for _, score in hits]


def _candidates(hits: Hits, embeddings: FloatArray) -> Candidates:
    return Candidates(
        documents=[_with_id(document) for document in hits[0]],
        embeddings=embeddings,
        scores=hits[1],
    )


def _with_id(document: Document) -> Document:
    """Return a document with its id in `id`; some stores, Qdrant's, have it in metadata."""
    if document.id is None and document.metadata.get("_id") is not None:
        return document.model_copy(update={"id": str(document.metadata["_id"])})
    return document


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
