"""The entries of a Faiss index: their ids, and changing them without mixing them up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sift_core.checks import as_finite_array, check_text
from sift_core.errors import CandidateSourceError, InvalidInputError
from sift_core.sources.content_ids import content_id
from sift_core.sources.faiss.search import downcast, faiss, id_map, list_ids
from sift_core.types import Document, FloatArray, IntArray


def entry_ids(index: Any) -> IntArray:
    """Return the ids of all entries, shape (ntotal,), in no particular order."""
    index = _untransformed(index)
    if isinstance(index, faiss.IndexIDMap):
        return id_map(index).copy()
    if isinstance(index, faiss.IndexIVF):
        return np.concatenate([list_ids(index, number) for number in range(index.nlist)])
    return np.arange(index.ntotal, dtype=np.int64)


def takes_ids(index: Any) -> bool:
    """Return whether entries keep ids of their own; elsewhere they are counted 0, 1, ..."""
    return isinstance(_untransformed(index), faiss.IndexIDMap | faiss.IndexIVF)


def add_entries(index: Any, ids: IntArray, vectors: FloatArray) -> None:
    """Add vectors (n, d), float32, under ids (n,); where ids are counted, these must be next.

    Raises:
        CandidateSourceError: If Faiss fails.
    """
    try:
        if takes_ids(index):
            index.add_with_ids(vectors, ids)
        else:
            index.add(vectors)
    except (RuntimeError, MemoryError) as error:
        raise _failed(index, error) from error


def remove_entries(index: Any, ids: IntArray) -> None:
    """Remove entries where the index can do that without mixing up its ids.

    Elsewhere nothing is removed, and a search must leave out what has no document: graphs, and
    IVF with a direct map, cannot remove; where ids are counted, those of later entries would
    shift; so they would in an `IndexIDMap` around IVF, which Faiss gets wrong (1.15). Costs O(n).

    Raises:
        CandidateSourceError: If Faiss fails.
    """
    inner = _untransformed(index)
    if isinstance(inner, faiss.IndexIDMap):
        removes = isinstance(_untransformed(inner.index), faiss.IndexFlatCodes)
    else:
        removes = isinstance(inner, faiss.IndexIVF) and inner.direct_map.no()
    if removes and len(ids):
        try:
            index.remove_ids(ids)
        except (RuntimeError, MemoryError) as error:
            raise _failed(index, error) from error


def starting_form(index: Any) -> Any:
    """Return the index; around an empty one of flat codes, an `IndexIDMap2`.

    That keeps ids, so that its entries can be removed.
    """
    is_plain = isinstance(_untransformed(index), faiss.IndexFlatCodes)
    return faiss.IndexIDMap2(index) if is_plain and index.ntotal == 0 else index


def check_is_trained(index: Any) -> None:
    """Refuse an index that vectors cannot be added to yet.

    Raises:
        InvalidInputError: If it is not trained.
    """
    if not index.is_trained:
        raise InvalidInputError(
            f"{type(downcast(index)).__name__} is not trained; call its `train` with a sample of "
            f"embeddings, before it is saved for the first time"
        )


def checked_rows(
    content_ids: Sequence[str], documents: Sequence[Document], embeddings: FloatArray, d: int
) -> FloatArray:
    """Return embeddings (n, d) as float32, fit to be added with n documents.

    Raises:
        InvalidInputError: If lengths or dimension differ, a number is not finite, or JSON
            cannot hold the metadata.
    """
    vectors = as_finite_array("embeddings", embeddings, n_dimensions=2)
    if not len(content_ids) == len(documents) == len(vectors):
        raise InvalidInputError(
            f"`content_ids`, `documents` and `embeddings` must have one row a document, got "
            f"{len(content_ids)}, {len(documents)} and {len(vectors)}"
        )
    if len(vectors) and vectors.shape[1] != d:
        raise InvalidInputError(
            f"`embeddings` must have {d} columns like the index, got {vectors.shape[1]}; were "
            f"both made by one model?"
        )
    for content, document in zip(content_ids, documents, strict=True):
        check_text("content id", content)
        content_id(document)  # refuses what JSON cannot hold
    with np.errstate(over="ignore"):  # becomes infinite, which is refused
        narrow: FloatArray = np.ascontiguousarray(vectors, dtype=np.float32)
    return as_finite_array("embeddings as float32", narrow, n_dimensions=2)


def _untransformed(index: Any) -> Any:
    """Return what an `IndexPreTransform` holds; any other index as it is."""
    index = downcast(index)
    return _untransformed(index.index) if isinstance(index, faiss.IndexPreTransform) else index


def _failed(index: Any, error: Exception) -> CandidateSourceError:
    return CandidateSourceError(
        f"Faiss could not change the {type(downcast(index)).__name__} in memory: {error}; load the "
        f"source again"
    )
