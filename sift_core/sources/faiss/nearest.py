"""The nearest documents of an index: searching it, filtering, leaving out what was deleted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from operator import attrgetter
from typing import Any

import numpy as np

from sift_core.selection.cosines import cosine_similarities
from sift_core.sources.contract import CopiedOnRead
from sift_core.sources.faiss.documents import Documents, Filter
from sift_core.sources.faiss.entries import MOST_HITS_ON_GPU, is_on_gpu, lossy_part
from sift_core.sources.faiss.search import Hits, search
from sift_core.types import CandidatePool, Document, FloatArray, IntArray, Query

# With a filter, this many times the hits wanted are looked at first; beyond this share of the
# index, comparing only what passes the filter is cheaper. Guesses.
_WIDER = 4
_LARGEST_SHARE = 1 / 8

_COLUMNS = attrgetter("document_id", "text", "metadata")


@dataclass(frozen=True, kw_only=True, eq=False)
class Found:
    """Documents found by one query, nearest first.

    Args:
        documents: n documents.
        vectors: Shape (n, d), float32.
    """

    documents: Sequence[Document]
    vectors: FloatArray


def find(
    index: Any, documents: Documents, queries: FloatArray, n_candidates: int, keep: Filter | None
) -> list[Found]:
    """Return the nearest documents of each query, fewer only where there are fewer.

    One search of all queries. Where that finds too few which were not deleted and pass the
    filter, a query is asked again for more; and where so few pass that this would not end soon,
    all documents are filtered, and only those that pass are compared.

    Args:
        index: Any Faiss index with vectors.
        documents: Its documents.
        queries: Shape (b, d), float32, contiguous.
        n_candidates: >= 1.
        keep: Called with a document's metadata.

    Raises:
        CandidateSourceError: If Faiss fails or a hit has no document.
    """
    most = min(index.ntotal, MOST_HITS_ON_GPU) if is_on_gpu(index) else index.ntotal
    k = min(n_candidates, most)
    n_deleted = min(documents.n_deleted(index.ntotal), _WIDER * k)
    n_first = min(k * (_WIDER if keep else 1) + n_deleted, most)
    largest = min(max(_WIDER * k, int(index.ntotal * _LARGEST_SHARE)), most)
    every = cache(lambda: documents.ids(keep))  # read once, and only where it is needed

    def of_one(row: int, ids: IntArray, vectors: FloatArray) -> Found:
        n_asked = n_first
        found = _kept(documents, ids, vectors, k, keep)
        while len(found.documents) < k and n_asked < index.ntotal and ids[-1] >= 0:
            n_asked = max(int(1.5 * k * n_asked / max(len(found.documents), 1)), 2 * n_asked)
            if n_asked > largest:
                n_wanted = min(k, len(every()))
                if n_wanted == 0:
                    return found
                hits = _search(index, queries[[row]], n_wanted, allowed=every())
                return _kept(documents, hits.ids[0], hits.embeddings[0], k, None)
            hits = _search(index, queries[[row]], n_asked)
            ids = hits.ids[0]
            found = _kept(documents, ids, hits.embeddings[0], k, keep)
        return found

    hits = _search(index, queries, n_first)
    return [
        of_one(row, *each) for row, each in enumerate(zip(hits.ids, hits.embeddings, strict=True))
    ]


def _search(index: Any, queries: FloatArray, k: int, *, allowed: IntArray | None = None) -> Hits:
    """Return hits with vectors, of unit length where the index gives back approximations."""
    hits = search(index, queries, k, allowed=allowed)
    if lossy_part(index) is None:
        return hits
    hits.embeddings[hits.ids < 0] = 0  # Faiss leaves NaN there
    return replace(hits, embeddings=of_unit_length(hits.embeddings))


def _kept(
    documents: Documents, ids: IntArray, vectors: FloatArray, k: int, keep: Filter | None
) -> Found:
    """Return the first k hits that have a document which passes, reading k at a time."""
    present = ids[ids >= 0].tolist()
    rows: list[int] = []
    kept: list[Document] = []
    for start in range(0, len(present), k):
        for row, document in enumerate(documents.of_ids(present[start : start + k]), start):
            if document is not None and (keep is None or keep(document.metadata)):
                rows.append(row)
                kept.append(document)
        if len(rows) >= k:
            break
    if len(rows) == len(ids):  # as nearly always
        return Found(documents=kept, vectors=vectors)
    return Found(documents=kept[:k], vectors=vectors[rows[:k]])


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


def of_unit_length(vectors: FloatArray) -> FloatArray:
    """Return the vectors (..., d) with unit length, float32; zeros stay zero."""
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=-1, keepdims=True)
    scaled: FloatArray = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return scaled
