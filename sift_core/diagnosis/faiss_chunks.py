"""Chunks drawn at random from a `FaissSource`."""

from __future__ import annotations

from typing import Any

import numpy as np

from sift_core.candidates.faiss_index import FaissSource
from sift_core.candidates.faiss_search import (
    downcast,
    failed_search,
    faiss,
    id_map,
    list_ids,
    transforms,
    unit_rows,
)
from sift_core.diagnosis.chunk_sample import ChunkSample
from sift_core.errors import InvalidInputError
from sift_core.types import FloatArray, IntArray, as_count

_MORE = 1.2  # drawn at first, since deleted entries have no document any more. Guess.


def sample_faiss(source: FaissSource, n_chunks: int, generator: np.random.Generator) -> ChunkSample:
    """Return up to `n_chunks` random chunks of a Faiss index, all of them where it has fewer.

    Vectors are read by position and documents by id, so that nothing else of the collection is
    read. A vector that the index compresses comes back as an approximation of unit length.

    Args:
        source: The index with its documents.
        n_chunks: >= 1.
        generator: What to draw with.

    Raises:
        CandidateSourceError: If the index cannot give vectors back, an id has no document, or a
            vector is not finite.
        InvalidInputError: If the source is empty, or of a kind whose entries cannot be drawn.
    """
    n_chunks = as_count("n_chunks", n_chunks, minimum=1)
    # A source has no public way to read entries by position.
    index, lookup = source._index, source._lookup
    with source._lock.reading():
        n_stored = min(index.ntotal, len(lookup))
        if n_stored == 0:
            raise InvalidInputError("the store is empty, so there is nothing to diagnose")
        order = generator.permutation(index.ntotal)
        vectors, documents = _first_present(index, lookup, order, min(n_chunks, n_stored))
    if source._nearest.lossy_part is not None:
        vectors = unit_rows(vectors)
    return ChunkSample(
        document_ids=[document.document_id for document in documents],
        texts=[document.text for document in documents],
        embeddings=vectors,
        metadata=[document.metadata for document in documents],
        n_stored=n_stored,
    )


def _first_present(
    index: Any, lookup: Any, order: IntArray, n: int
) -> tuple[FloatArray, list[Any]]:
    """Return vectors (n, d) and documents of the first n entries that were not deleted."""
    rows: list[FloatArray] = []
    documents: list[Any] = []
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
    return np.array(rows, dtype=np.float32).reshape(-1, index.d), documents


def _entries(index: Any, positions: IntArray) -> tuple[IntArray, FloatArray]:
    """Return ids (n,) and vectors (n, d) of entries by position, in [0, ntotal)."""
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
            f"drawn at random; diagnose an index of another type over the same chunks"
        )
    if isinstance(index, faiss.IndexIVF):
        return _entries_of_lists(index, positions)
    vectors = index.reconstruct_batch(np.ascontiguousarray(positions, dtype=np.int64))
    return positions.astype(np.int64), vectors


def _entries_of_lists(index: Any, positions: IntArray) -> tuple[IntArray, FloatArray]:
    """Return the same for an IVF index; positions run through its lists, one after another."""
    sizes = [index.invlists.list_size(number) for number in range(index.nlist)]
    ends = np.cumsum(sizes)
    lists = np.searchsorted(ends, positions, side="right")
    ids = np.empty(len(positions), dtype=np.int64)
    vectors = np.empty((len(positions), index.d), dtype=np.float32)
    for row, (position, number) in enumerate(zip(positions.tolist(), lists.tolist(), strict=True)):
        offset = position - int(ends[number] - sizes[number])
        ids[row] = list_ids(index, number)[offset]
        index.reconstruct_from_offset(number, offset, faiss.swig_ptr(vectors[row]))
    return ids, vectors
