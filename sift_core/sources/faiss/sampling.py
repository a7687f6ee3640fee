"""Documents drawn at random from a Faiss index, read by position."""

from __future__ import annotations

from typing import Any

import numpy as np

from sift_core.errors import InvalidInputError
from sift_core.sources.faiss.documents import DocumentLookup
from sift_core.sources.faiss.search import (
    downcast,
    failed_search,
    faiss,
    id_map,
    list_ids,
    lossy_part,
    transforms,
    unit_rows,
)
from sift_core.sources.sampling import as_sample, nothing_to_sample
from sift_core.types import Document, DocumentSample, FloatArray, IntArray

_MORE = 1.2  # drawn at first, since deleted entries have no document any more. Guess.


def sample_index(
    index: Any, lookup: DocumentLookup, n: int, generator: np.random.Generator
) -> DocumentSample:
    """Return up to n random documents of an index that have not been deleted.

    Reads their vectors and documents alone; shuffles the positions of all entries, 8 bytes each.

    Args:
        index: Any Faiss index.
        lookup: Its documents.
        n: >= 1.
        generator: What to draw with.

    Raises:
        CandidateSourceError: If the index cannot give vectors back, an id has no document, or a
            vector is not finite.
        InvalidInputError: If there is no document, or the index is of a kind whose entries cannot
            be drawn.
    """
    place = f"the Faiss {type(downcast(index)).__name__}"
    n_entries = _n_entries(index)
    n_stored = min(n_entries, len(lookup))
    if n_stored == 0:
        raise nothing_to_sample(place)
    n = min(n, n_stored)
    order = generator.permutation(n_entries)
    rows: list[FloatArray] = []
    documents: list[Document] = []
    start, step = 0, int(_MORE * n) + 1
    while len(rows) < n and start < len(order):
        try:
            ids, vectors = _entries(index, order[start : start + step])
        except (RuntimeError, AssertionError) as error:
            raise failed_search(index, error) from error
        for vector, document in zip(vectors, lookup.get(ids.tolist()), strict=True):
            if document is not None and len(rows) < n:
                rows.append(vector)
                documents.append(document)
        start += step
    embeddings = np.array(rows, dtype=np.float32).reshape(-1, index.d)
    return as_sample(
        place,
        document_ids=[document.document_id for document in documents],
        texts=[document.text for document in documents],
        embeddings=embeddings if lossy_part(index) is None else unit_rows(embeddings),
        metadata=[dict(document.metadata) for document in documents],
        n_stored=n_stored,
    )


def _n_entries(index: Any) -> int:
    """Return how many entries there are; an IVF index counts those too that no list took (NaN)."""
    index = downcast(index)
    if isinstance(index, faiss.IndexIDMap | faiss.IndexPreTransform):
        return _n_entries(index.index)
    return int(_list_sizes(index).sum()) if isinstance(index, faiss.IndexIVF) else index.ntotal


def _list_sizes(index: Any) -> IntArray:
    return np.array([index.invlists.list_size(number) for number in range(index.nlist)])


def _entries(index: Any, positions: IntArray) -> tuple[IntArray, FloatArray]:
    """Return ids (n,) and vectors (n, d) of entries by position, in [0, _n_entries)."""
    index = downcast(index)
    if isinstance(index, faiss.IndexIDMap):
        inner, vectors = _entries(index.index, positions)
        return id_map(index)[inner], vectors
    if isinstance(index, faiss.IndexPreTransform):
        ids, vectors = _entries(index.index, positions)
        for transform in reversed(transforms(index)):
            vectors = transform.reverse_transform(np.ascontiguousarray(vectors))
        return ids, vectors
    if isinstance(index, faiss.IndexIVFFastScan):
        raise InvalidInputError(
            f"{type(index).__name__} keeps entries in an order of its own, from which none can be "
            f"drawn at random; draw from an index of another type over the same documents"
        )
    if isinstance(index, faiss.IndexIVF):
        return _entries_of_lists(index, positions)
    positions = np.ascontiguousarray(positions, dtype=np.int64)
    return positions, index.reconstruct_batch(positions)


def _entries_of_lists(index: Any, positions: IntArray) -> tuple[IntArray, FloatArray]:
    """Return the same for an IVF index; positions run through its lists, one after another."""
    sizes = _list_sizes(index)
    ends = np.cumsum(sizes)
    lists = np.searchsorted(ends, positions, side="right")
    offsets = positions - (ends - sizes)[lists]
    ids = np.empty(len(positions), dtype=np.int64)
    vectors = np.empty((len(positions), index.d), dtype=np.float32)
    for number in np.unique(lists).tolist():
        rows = np.flatnonzero(lists == number)
        ids[rows] = list_ids(index, number)[offsets[rows]]
        for row in rows.tolist():
            offset = int(offsets[row])
            index.reconstruct_from_offset(number, offset, faiss.swig_ptr(vectors[row]))
    return ids, vectors
