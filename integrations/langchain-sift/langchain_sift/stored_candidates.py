"""Which stores give their vectors back, and how to read candidates from each."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore

from langchain_sift.candidates import (
    Candidates,
    Search,
    refuse_filter,
    refuse_options,
    store_failures,
)
from langchain_sift.faiss_rows import read_faiss
from langchain_sift.qdrant_points import read_qdrant

Reader: TypeAlias = Callable[[Any, Search], Candidates]


def stored_reader(store: VectorStore) -> Reader | None:
    """Return the function that reads a store's candidates with their vectors.

    None for a store that keeps its vectors to itself, as a sparse Qdrant collection does.
    """
    if is_qdrant(store):
        return read_qdrant
    if is_faiss(store):
        return read_faiss
    if isinstance(store, InMemoryVectorStore):
        return read_in_memory
    return None


def is_qdrant(store: VectorStore) -> bool:
    """Tell whether a store is a `QdrantVectorStore` whose points have dense vectors."""
    if not _is_a(store, "langchain_qdrant.qdrant", "QdrantVectorStore"):
        return False
    return bool(store.retrieval_mode.value != "sparse")  # type: ignore[attr-defined]  # optional class


def is_faiss(store: VectorStore) -> bool:
    """Tell whether a store is the FAISS store of `langchain_community`."""
    return _is_a(store, "langchain_community.vectorstores.faiss", "FAISS")


def read_in_memory(store: InMemoryVectorStore, search: Search) -> Candidates:
    """Return the nearest documents by cosine, with their vectors.

    Args:
        store: LangChain's own store.
        search: What to look for; `filter` is called with a `Document`. No `options`.

    Raises:
        CandidateSourceError: If the store fails, for instance in the filter.
        InvalidInputError: If the filter is no function, or there are options.
    """
    refuse_options(store, set(search.options))
    if not (search.filter is None or callable(search.filter)):
        refuse_filter(store, search.filter, "a function of a document")
    with store_failures(
        store,
        f"its {len(store.store)} documents",
        "are query and documents embedded by one model, and is the filter right?",
    ):
        hits = store.similarity_search_with_score_by_vector(
            search.query.vector.tolist(), k=search.n_candidates, filter=search.filter
        )
        documents = [document for document, _ in hits]
        embeddings = np.array([store.store[str(each.id)]["vector"] for each in documents])
    return Candidates(
        documents=documents, embeddings=embeddings, scores=[score for _, score in hits]
    )


def _is_a(store: object, module: str, name: str) -> bool:
    """Tell whether `store` is of an optional class, which is loaded if it is."""
    return isinstance(store, getattr(sys.modules.get(module), name, ()))
