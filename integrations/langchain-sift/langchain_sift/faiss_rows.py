"""Candidates with their vectors from a `langchain_community` FAISS store."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import numpy.typing as npt
from langchain_core.documents import Document

from langchain_sift.candidates import (
    Candidates,
    FloatArray,
    Search,
    refuse_filter,
    refuse_options,
    store_failures,
)
from sift_core import InvalidInputError

WIDENING = 4  # how many times more rows are searched when a filter left too few; a guess


def read_faiss(store: Any, search: Search) -> Candidates:
    """Return the index's nearest documents by its own metric, with their vectors.

    An index that compresses (PQ, SQ) gives back approximate vectors, and the selection is
    as approximate as they are.

    Args:
        store: A FAISS store of `langchain_community`.
        search: What to look for; `filter` is a dictionary or a callable over metadata.
            Unlike in the store's own search, a filter that leaves too few documents
            widens the search, at the cost of a call of the filter a row. No `options`.

    Raises:
        CandidateSourceError: If Faiss fails, or a row has no document.
        InvalidInputError: If the dimensions differ, the filter is of another kind, or there
            are options.
    """
    refuse_options(store, set(search.options))
    if not (search.filter is None or isinstance(search.filter, dict) or callable(search.filter)):
        refuse_filter(store, search.filter, "a dictionary or a function of a document's metadata")
    index = store.index
    if len(search.query.vector) != index.d:
        raise InvalidInputError(
            f"the query has {len(search.query.vector)} dimensions, the FAISS index has "
            f"{index.d}; were both embedded by one model?"
        )
    if index.ntotal == 0:
        return Candidates(documents=[], embeddings=np.empty((0, index.d)))
    vector = _as_stored(store, search.query.vector)
    if search.filter is None:
        return _nearest(store, vector, search.n_candidates)
    try:
        keep = store._create_filter_func(search.filter)  # the store's own reading; not public
    except ValueError as error:  # an operator that it does not know
        raise InvalidInputError(f"`filter` cannot be read by FAISS: {error}") from error
    return _nearest_kept(store, vector, search.n_candidates, keep)


def _as_stored(store: Any, embedding: FloatArray) -> npt.NDArray[np.float32]:
    """Return the query as one row (1, d), scaled to unit length where the store's rows are."""
    length = float(np.linalg.norm(embedding)) if store._normalize_L2 else 1.0
    return np.ascontiguousarray(embedding / (length or 1.0), dtype=np.float32)[np.newaxis]


def _nearest(store: Any, vector: FloatArray, n: int) -> Candidates:
    """Return the documents of the nearest rows and their vectors, in one call of Faiss."""
    with _failures(store):
        scores, rows, embeddings = store.index.search_and_reconstruct(
            vector, min(n, store.index.ntotal)
        )
    found = rows[0] >= 0  # Faiss fills missing hits with -1 and NaN
    return Candidates(
        documents=_documents(store, rows[0][found].tolist()),
        embeddings=embeddings[0][found],
        scores=scores[0][found].tolist(),
    )


def _nearest_kept(
    store: Any, vector: FloatArray, n: int, keep: Callable[[dict[str, Any]], bool]
) -> Candidates:
    """Return the nearest documents that the filter keeps, and their vectors.

    Searches first without vectors, so that those of dropped rows are never copied.
    """
    index = store.index
    n_searched = min(n, index.ntotal)
    while True:
        with _failures(store):
            scores, rows = index.search(vector, n_searched)
        found = rows[0][rows[0] >= 0].tolist()
        documents = _documents(store, found)
        kept = [i for i, document in enumerate(documents) if keep(document.metadata)][:n]
        if len(kept) == n or len(found) < n_searched or n_searched == index.ntotal:
            break
        n_searched = min(WIDENING * n_searched, index.ntotal)
    if not kept:
        return Candidates(documents=[], embeddings=np.empty((0, index.d)))
    with _failures(store):
        embeddings = index.reconstruct_batch(np.array([found[i] for i in kept], dtype=np.int64))
    return Candidates(
        documents=[documents[i] for i in kept],
        embeddings=embeddings,
        scores=scores[0][kept].tolist(),  # hits come before the rows that Faiss fills up
    )


def _documents(store: Any, rows: list[int]) -> list[Document]:
    """Return the documents of some rows of the index; they are the docstore's own objects."""
    with _failures(store):
        return [_document(store, store.index_to_docstore_id[row]) for row in rows]


def _document(store: Any, document_id: str) -> Document:
    document = store.docstore.search(document_id)
    if not isinstance(document, Document):  # the docstore answers with a message
        raise LookupError(document)
    if document.id is None:  # stores written by older versions
        return document.model_copy(update={"id": str(document_id)})
    return document


def _failures(store: Any) -> AbstractContextManager[None]:
    return store_failures(
        store,
        f"its {type(store.index).__name__} of {store.index.ntotal} rows",
        "index and docstore must be built together, and the index must give its vectors back "
        "(IndexIDMap2 instead of IndexIDMap; `index.make_direct_map()` for a filter over IVF)",
    )
