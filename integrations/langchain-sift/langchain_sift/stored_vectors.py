"""Vectors that a store already holds for documents that came from it, read by document id.

A vector counts only where the store's text is the document's: a splitter or an extractor
changes texts and keeps the id in the metadata.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore

from langchain_sift.candidates import FloatArray, store_failures
from langchain_sift.qdrant_points import dense_vector, with_vectors
from langchain_sift.stored_candidates import is_faiss, is_qdrant

_ADVICE = (
    "is it reachable, and does it give its vectors back? Leave `vectorstore` out to have the "
    "texts embedded again"
)


def stored_vectors(store: VectorStore, documents: Sequence[Document]) -> list[FloatArray | None]:
    """Return the stored vector of each document, shape (d,); None where there is none.

    One request for all of them. O(N) in a FAISS store of N documents, some 30 ms a million.

    Args:
        store: Qdrant, FAISS or LangChain's in-memory store; any other gives None throughout.
        documents: With the id in `id`, or in `metadata["_id"]` as langchain-qdrant has it.

    Raises:
        CandidateSourceError: If the store fails.
    """
    read, key_of = _reader(store)
    if read is None:
        return [None] * len(documents)
    with store_failures(store, f"{len(documents)} documents by id", _ADVICE):
        keys = [key_of(store, document) for document in documents]
        held = read(store, [each for each in dict.fromkeys(keys) if each is not None])
    return [
        None if each not in held or held[each][0] != document.page_content else held[each][1]
        for each, document in zip(keys, documents, strict=True)
    ]


def _reader(store: VectorStore) -> tuple[Any, Callable[[Any, Document], Any]]:
    """Return how to read vectors by key, or None, and the key of a document."""
    if is_qdrant(store):
        return _read_qdrant, _point_key
    if is_faiss(store):
        return _read_faiss, _document_key
    return (_read_in_memory if isinstance(store, InMemoryVectorStore) else None), _document_key


def _read_qdrant(store: Any, ids: Sequence[int | str]) -> dict[Any, tuple[str, Any]]:
    if not ids:
        return {}
    points = store.client.retrieve(
        store.collection_name,
        ids=list(ids),
        with_payload=[store.content_payload_key],
        with_vectors=with_vectors(store),
    )
    return {
        _as_point_id(point.id): (point.payload.get(store.content_payload_key, ""), np.array(vector))
        for point in points
        if (vector := dense_vector(store, point)) is not None
    }


def _read_faiss(store: Any, ids: Sequence[str]) -> dict[str, tuple[str, Any]]:
    wanted = set(ids)
    rows = {key: row for row, key in store.index_to_docstore_id.items() if key in wanted}
    if not rows:
        return {}
    vectors = store.index.reconstruct_batch(np.array(list(rows.values()), dtype=np.int64))
    return {
        key: (store.docstore.search(key).page_content, vector)
        for key, vector in zip(rows, vectors, strict=True)
    }


def _read_in_memory(store: InMemoryVectorStore, ids: Sequence[str]) -> dict[str, tuple[str, Any]]:
    held = {each: store.store[each] for each in ids if each in store.store}
    return {each: (entry["text"], np.array(entry["vector"])) for each, entry in held.items()}


def _document_key(store: Any, document: Document) -> str | None:
    return document.id


def _point_key(store: Any, document: Document) -> int | str | None:
    """Return the id of the point that a document came from; None where it came from elsewhere."""
    if document.metadata.get("_collection_name", store.collection_name) != store.collection_name:
        return None
    return _as_point_id(document.metadata.get("_id", document.id))


def _as_point_id(value: object) -> int | str | None:
    """Return an id as Qdrant spells it; None for what it would refuse: other stores' ids."""
    try:
        return str(uuid.UUID(str(value)))
    except ValueError:
        pass
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**64:
        return value
    return None
