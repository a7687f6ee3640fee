"""The nearest documents of an index: searching it, filtering, leaving out what was deleted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from operator import attrgetter
from typing import Any, TypeAlias

import numpy as np

from sift_core.selection.kernels import cosine_similarities
from sift_core.sources.copied_on_read import CopiedOnRead
from sift_core.sources.faiss.documents import CallersDocuments, DocumentTable, Filter
from sift_core.sources.faiss.search import (
    FAULTS,
    MOST_HITS_ON_GPU,
    BatchHits,
    failed_search,
    is_on_gpu,
    lossy_part,
    search,
)
from sift_core.types import CandidatePool, Document, FloatArray, IntArray, Query

Documents: TypeAlias = CallersDocuments | DocumentTable

# With a filter, this many times the hits wanted are looked at first; beyond this share of the
# index, comparing only what passes the filter is cheaper. Guesses.
_WIDER = 4
_LARGEST_SHARE = 1 / 8

_COLUMNS = attrgetter("document_id", "text", "metadata")


@dataclass(frozen=True, kw_only=True, eq=False)
class Found:
    """Documents found by one query, nearest first.

    Args:
        ids: n Faiss ids.
        documents: n documents.
        vectors: Shape (n, d), float32.
    """

    ids: Sequence[int]
    documents: Sequence[Document]
    vectors: FloatArray


def find(
    index: Any, documents: Documents, queries: FloatArray, k: int, keep: Filter | None
) -> list[Found]:
    """Return the k nearest documents of each query, fewer only where there are fewer.

    One search of all queries. Where that finds too few which were not deleted and pass the
    filter, a query is asked again for more; and where so few pass that this would not end soon,
    all documents are filtered, and only those that pass are compared.

    Args:
        index: Any Faiss index.
        documents: Its documents.
        queries: Shape (b, d), float32, contiguous.
        k: 1 <= k <= number of vectors.
        keep: Called with a document's metadata.

    Raises:
        CandidateSourceError: If Faiss fails or a hit has no document.
    """
    n_deleted = 0
    if isinstance(documents, DocumentTable):
        n_deleted = max(0, index.ntotal - len(documents))
    n_asked = min(k * (_WIDER if keep else 1) + min(n_deleted, _WIDER * k), index.ntotal)
    largest = min(max(_WIDER * k, int(index.ntotal * _LARGEST_SHARE)), index.ntotal)
    if is_on_gpu(index):
        n_asked, largest = min(n_asked, MOST_HITS_ON_GPU), min(largest, MOST_HITS_ON_GPU)
    every = cache(lambda: documents.ids(keep))  # read once, and only where it is needed

    def of_one(row: int, n_asked: int, found: Found) -> Found:
        while len(found.ids) < k:
            needed = max(int(1.5 * k * n_asked / max(len(found.ids), 1)), 2 * n_asked)
            if needed > largest:
                n_wanted = min(k, len(every()))
                if n_wanted == 0:
                    return found
                hits = _search(index, queries[[row]], n_wanted, allowed=every())
                return _kept(documents, hits.ids[0], hits.vectors[0], k, None)
            n_asked = needed
            hits = _search(index, queries[[row]], n_asked)
            found = _kept(documents, hits.ids[0], hits.vectors[0], k, keep)
            if n_asked == index.ntotal or hits.ids[0, -1] < 0:
                break
        return found

    hits = _search(index, queries, n_asked)
    all_found = []
    for row, (ids, vectors) in enumerate(zip(hits.ids, hits.vectors, strict=True)):
        found = _kept(documents, ids, vectors, k, keep)
        is_all = n_asked == index.ntotal or ids[-1] < 0
        all_found.append(found if is_all else of_one(row, n_asked, found))
    return all_found


def _search(
    index: Any, queries: FloatArray, k: int, *, allowed: IntArray | None = None
) -> BatchHits:
    """Return hits with vectors, of unit length where the index gives back approximations."""
    try:
        hits = search(index, queries, k, allowed=allowed)
    except FAULTS as error:
        raise failed_search(index, error) from error
    if lossy_part(index) is None:
        return hits
    hits.vectors[hits.ids < 0] = 0  # Faiss leaves NaN there
    return replace(hits, vectors=unit_rows(hits.vectors))


def _kept(
    documents: Documents, ids: IntArray, vectors: FloatArray, k: int, keep: Filter | None
) -> Found:
    """Return the first k hits that have a document which passes, reading k at a time."""
    present = ids[ids >= 0].tolist()
    rows: list[int] = []
    kept: list[Document] = []
    for start in range(0, len(present), k):
        for row, document in enumerate(documents.of_ids(present[start : start + k]), start):
            if document is None or (keep is not None and not keep(document.metadata)):
                continue
            rows.append(row)
            kept.append(document)
            if len(rows) == k:
                break
        if len(rows) == k:
            break
    if len(rows) == len(ids):  # as nearly always
        return Found(ids=present, documents=kept, vectors=vectors)
    return Found(ids=[present[row] for row in rows], documents=kept, vectors=vectors[rows])


def as_pool(query: Query, found: Found) -> CandidatePool:
    """Return what one query found as a pool, with cosines to it."""
    columns = zip(*map(_COLUMNS, found.documents), strict=True)
    ids, texts, metadata = columns if found.documents else ((), (), ())
    return CandidatePool(
        document_ids=ids,
        texts=texts,
        embeddings=found.vectors,
        similarities=cosine_similarities(query.vector, found.vectors),
        metadata=CopiedOnRead(metadata),
    )


def unit_rows(vectors: FloatArray) -> FloatArray:
    """Return the vectors (..., d) with unit length, float32; zeros stay zero."""
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=-1, keepdims=True)
    scaled: FloatArray = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return scaled
