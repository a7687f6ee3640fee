"""Searching a Faiss index and getting its vectors back, whatever wraps it, as hits or pools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from operator import attrgetter
from typing import Any

import numpy as np

from sift_core.checks import as_count, as_finite_array
from sift_core.errors import CandidateSourceError, InvalidInputError
from sift_core.selection.cosines import cosine_similarities
from sift_core.sources.contract import CopiedOnRead, as_float32
from sift_core.sources.faiss.documents import Documents, Filter
from sift_core.sources.faiss.entries import (
    GRAPHS,
    MOST_HITS_ON_GPU,
    all_vectors,
    as_ids,
    check_index,
    downcast,
    faiss,
    id_map,
    is_on_gpu,
    list_ids,
    lossy_part,
    transforms,
)
from sift_core.types import BoolArray, CandidatePool, Document, FloatArray, IntArray, Query

_FAULTS = (RuntimeError, AssertionError)  # what Faiss raises

# With a filter, this many times the hits wanted are looked at first; beyond this share of the
# index, comparing only what passes the filter is cheaper. Guesses.
_WIDER = 4
_LARGEST_SHARE = 1 / 8

_COLUMNS = attrgetter("document_id", "text", "metadata")


@dataclass(frozen=True, kw_only=True, eq=False)
class Hits:
    """Nearest neighbours of one query, nearest first; of b queries with one more axis in front.

    Args:
        ids: Shape (n,), int64, of the index's entries. Any number may be one.
        scores: Shape (n,), inner products or distances, by the index's own metric.
        embeddings: Shape (n, d), float32; approximations where the index compresses.

    Of b queries, one with fewer than n hits has the id -1 and an infinite score in their place, and
    vectors of no meaning.
    """

    ids: IntArray
    scores: FloatArray
    embeddings: FloatArray

    def of_query(self, row: int) -> Hits:
        """Return the hits of one of b queries, without the places of missing ones."""
        is_hit, each = _are_hits(self.ids[row], self.scores[row]), vars(self)
        if is_hit.all():  # as nearly always: no copy
            return Hits(**{name: column[row] for name, column in each.items()})
        return Hits(**{name: column[row][is_hit] for name, column in each.items()})


def _are_hits(ids: IntArray, scores: FloatArray) -> BoolArray:
    """Return which places hold a hit: an id alone cannot tell, since an entry may have -1."""
    return np.asarray((ids != -1) | (np.abs(scores) < np.finfo(np.float32).max), dtype=np.bool_)


def search_with_vectors(
    index: Any, query: FloatArray, n: int, *, allowed: Sequence[int] | IntArray | None = None
) -> Hits:
    """Return the nearest entries of an index with their vectors, in one search where it can.

    Flat, IVF, HNSW, NSG and codes, whatever wraps them; none needs a direct map. HNSW looks at
    n nodes at least, whatever its efSearch; IVF returns fewer where the lists that it probes
    (nprobe) hold fewer.

    Args:
        index: Any trained Faiss index of floats.
        query: Shape (d,), as the index's vectors are scaled.
        n: How many at most, >= 1.
        allowed: The only ids that may be returned. Costs O(ntotal) more; graphs (HNSW) are left
            aside then, and all allowed vectors compared.

    Raises:
        CandidateSourceError: If Faiss fails, or the index cannot give vectors back.
        InvalidInputError: If an argument cannot be used, or the dimensions differ.

    Example:
        >>> import faiss
        >>> index = faiss.IndexFlatIP(2)
        >>> index.add(np.eye(2, dtype=np.float32))
        >>> hits = search_with_vectors(index, np.array([1.0, 0.5]), 2)
        >>> hits.ids.tolist(), hits.embeddings.tolist()
        ([0, 1], [[1.0, 0.0], [0.0, 1.0]])
    """
    check_index(index)
    n = as_count("n", n, minimum=1)
    vector = as_float32(as_finite_array("query", query, n_dimensions=1))
    if len(vector) != index.d:
        raise InvalidInputError(
            f"the query has {len(vector)} dimensions, the Faiss index has {index.d}; were both "
            f"embedded by one model?"
        )
    ids = None if allowed is None else as_ids("allowed", allowed)
    n = min(n, index.ntotal if ids is None else len(ids))
    if n == 0:
        empty = np.empty((0, index.d), dtype=np.float32)
        return Hits(ids=np.empty(0, dtype=np.int64), scores=empty[:, 0], embeddings=empty)
    return search(index, np.ascontiguousarray(vector[np.newaxis]), n, allowed=ids).of_query(0)


def stored_vectors(index: Any, ids: Sequence[int] | IntArray) -> FloatArray:
    """Return the vectors of entries of an index, shape (n, d), float32, in the order asked for.

    Whatever wraps the index: an `IndexIDMap` and an IVF index without a direct map are read too,
    in O(ntotal). One that compresses gives back approximations.

    Args:
        index: Any Faiss index of floats.
        ids: n ids of its entries; one may come twice.

    Raises:
        CandidateSourceError: If the index has no such id, cannot give vectors back, or fails.
        InvalidInputError: If `index` is none, or an id is no integer.

    Example:
        >>> import faiss
        >>> index = faiss.IndexFlatIP(2)
        >>> index.add(np.eye(2, dtype=np.float32))
        >>> stored_vectors(index, [1]).tolist()
        [[0.0, 1.0]]
    """
    check_index(index)
    asked = as_ids("ids", ids)
    if not asked.size:
        return np.empty((0, index.d), dtype=np.float32)
    try:
        return _vectors(index, asked)
    except LookupError as error:
        raise CandidateSourceError(
            f"Faiss {type(index).__name__} of {index.ntotal} vectors does not hold what was asked "
            f"for: {error}; do the index and what names its entries belong together?"
        ) from error
    except _FAULTS as error:
        raise _failed(index, error) from error


def search(index: Any, queries: FloatArray, k: int, *, allowed: IntArray | None = None) -> Hits:
    """Return the k nearest neighbours of each query with their vectors, shape (b, k) and (b, k, d).

    The index's own settings hold (nprobe, max_codes, k_factor), but HNSW's efSearch is
    raised to k: a beam narrower than the answer returns short lists. A graph that still finds
    fewer than k is left aside and all its vectors compared, so only IVF, whose probed lists may
    hold fewer, returns less. No IVF index needs a direct map, and `IndexIDMap` gives its
    vectors back as `IndexIDMap2` does.

    Args:
        index: Any trained float index.
        queries: Shape (b, d), float32, contiguous.
        k: At most as many as the index holds.
        allowed: The only ids that may be returned. With None all may be. Costs O(n) more
            for an index of n vectors. Graphs (HNSW, NSG) and codes that `IndexRefine` goes
            around are left aside and all allowed vectors compared, since a graph search that
            skips most nodes misses neighbours. Types that take no selector (PQ, fast scan) are
            asked for all that they hold, and their answer is thinned.

    Raises:
        CandidateSourceError: If Faiss fails, or the index type cannot give vectors back.
    """
    try:
        return _search(index, queries, k, allowed)
    except _FAULTS as error:
        raise _failed(index, error) from error


def _search(index: Any, queries: FloatArray, k: int, allowed: IntArray | None) -> Hits:
    index = downcast(index)
    if isinstance(index, faiss.IndexIDMap):
        ids = id_map(index)
        positions = None if allowed is None else np.flatnonzero(np.isin(ids, allowed))
        hits = _search(index.index, queries, k, positions)
        return replace(hits, ids=np.where(hits.ids >= 0, ids[hits.ids], -1))
    if isinstance(index, faiss.IndexPreTransform):
        for transform in transforms(index):
            queries = transform.apply(queries)
        hits = _search(index.index, queries, k, allowed)
        vectors = hits.embeddings.reshape(hits.ids.size, -1)
        is_hit = _are_hits(hits.ids, hits.scores)
        vectors[~is_hit.ravel()] = 0  # not the NaN that Faiss leaves there
        vectors = _reversed(index, vectors).reshape(*hits.ids.shape, index.d)
        return replace(hits, embeddings=vectors)
    if allowed is not None:
        return _search_among(all_vectors(index), queries, k, allowed)
    options = {}
    if isinstance(index, faiss.IndexHNSW) and index.hnsw.efSearch < k:
        options["params"] = faiss.SearchParametersHNSW(
            efSearch=k, check_relative_distance=index.hnsw.check_relative_distance
        )
    scores, ids, vectors = index.search_and_reconstruct(queries, k, **options)
    if isinstance(index, GRAPHS) and (ids < 0).any():  # parts that no path leads to
        return _search(index.storage, queries, k, None)
    return Hits(ids=ids, scores=_told_apart(index, ids, scores), embeddings=vectors)


def _told_apart(index: Any, ids: IntArray, scores: FloatArray) -> FloatArray:
    """Return scores, infinite where there is no hit, of an index that wraps no other.

    Only IVF has ids that may be negative, and gives what it did not find the largest number.
    """
    is_hit = _are_hits(ids, scores) if isinstance(index, faiss.IndexIVF) else ids >= 0
    return np.where(is_hit, scores, np.inf)


def _search_among(index: Any, queries: FloatArray, k: int, allowed: IntArray) -> Hits:
    """Return the k nearest of the allowed ids from an index that wraps no other."""
    selector = faiss.IDSelectorBatch(np.ascontiguousarray(allowed, dtype=np.int64))
    params = faiss.SearchParameters(sel=selector)
    if isinstance(index, faiss.IndexIVF):
        settings = {"nprobe": index.nprobe, "max_codes": index.max_codes}
        params = faiss.SearchParametersIVF(sel=selector, **settings)
    is_thinned = True
    if (allowed == -1).any():  # which IVF finds by no other search (Faiss 1.15)
        scores, ids, _ = index.search_and_reconstruct(queries, index.ntotal)
    else:
        try:
            scores, ids = index.search(queries, k, params=params)
            is_thinned = False
        except RuntimeError:  # this type takes no selector
            scores, ids = index.search(queries, index.ntotal)
    scores = _told_apart(index, ids, scores)
    if is_thinned:
        scores = np.where(np.isin(ids, allowed), scores, np.inf)
        first = np.argsort(np.isinf(scores), axis=1, kind="stable")[:, :k]
        scores = np.take_along_axis(scores, first, axis=1)
        ids = np.where(np.isinf(scores), -1, np.take_along_axis(ids, first, axis=1))
    is_hit = _are_hits(ids, scores)
    vectors = np.zeros((*ids.shape, index.d), dtype=np.float32)
    if is_hit.any():
        vectors[is_hit] = _vectors(index, ids[is_hit])
    return Hits(ids=ids, scores=scores, embeddings=vectors)


def _vectors(index: Any, ids: IntArray) -> FloatArray:
    """Return the vectors of entries by id, shape (n, d).

    Raises:
        LookupError: If an id is not there.
    """
    index = downcast(index)
    if isinstance(index, faiss.IndexIDMap):
        held = id_map(index)
        order = np.argsort(held, kind="stable")
        # Of an id that was given twice the last entry, as IndexIDMap2 takes it.
        places = np.searchsorted(held, ids, side="right", sorter=order) - 1
        positions = order[np.maximum(places, 0)]
        _check_are_there(ids, np.flatnonzero(held[positions] != ids))
        return _vectors(index.index, positions)
    if isinstance(index, faiss.IndexPreTransform):
        return _reversed(index, np.ascontiguousarray(_vectors(index.index, ids)))
    if not isinstance(index, faiss.IndexIVF):  # others read any memory
        _check_are_there(ids, np.flatnonzero((ids < 0) | (ids >= index.ntotal)))
    elif index.direct_map.no():
        return _vectors_in_lists(index, ids)
    found: FloatArray = index.reconstruct_batch(ids)
    return found


def _vectors_in_lists(index: Any, ids: IntArray) -> FloatArray:
    """Return the vectors (n, d) of entries of an IVF index without a direct map."""
    wanted, rows = np.unique(ids, return_inverse=True)
    vectors = np.zeros((len(wanted), index.d), dtype=np.float32)
    is_missing = np.ones(len(wanted), dtype=bool)
    for number in range(index.nlist):
        entries = list_ids(index, number)
        places = np.minimum(np.searchsorted(wanted, entries), len(wanted) - 1)
        for offset in np.flatnonzero(wanted[places] == entries).tolist():
            row = places[offset]
            index.reconstruct_from_offset(number, offset, faiss.swig_ptr(vectors[row]))
            is_missing[row] = False
        if not is_missing.any():
            break
    _check_are_there(wanted, np.flatnonzero(is_missing))
    return vectors[rows]


def _check_are_there(ids: IntArray, missing: IntArray) -> None:
    if len(missing):
        raise LookupError(f"it has no entry {ids[missing[0]]}")


def _reversed(index: Any, rows: FloatArray) -> FloatArray:
    """Return vectors (n, d) from before the transforms of an `IndexPreTransform`."""
    for transform in reversed(transforms(index)):
        rows = transform.reverse_transform(rows)
    return rows


def _failed(index: Any, error: Exception) -> CandidateSourceError:
    return CandidateSourceError(
        f"Faiss {type(index).__name__} of {index.ntotal} vectors could not search and return "
        f"vectors: {error}; not every index type can give its vectors back (IndexFlat, HNSW and "
        f"IVF can)"
    )


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

    def of_one(row: int, hits: Hits) -> Found:
        n_asked = n_first
        found = _kept(documents, hits, k, keep)
        while len(found.documents) < k and n_asked < index.ntotal and len(hits.ids) == n_asked:
            n_asked = max(int(1.5 * k * n_asked / max(len(found.documents), 1)), 2 * n_asked)
            if n_asked > largest:
                n_wanted = min(k, len(every()))
                if n_wanted == 0:
                    return found
                hits = _search_for_pool(index, queries[[row]], n_wanted, allowed=every())
                return _kept(documents, hits.of_query(0), k, None)
            hits = _search_for_pool(index, queries[[row]], n_asked).of_query(0)
            found = _kept(documents, hits, k, keep)
        return found

    found = _search_for_pool(index, queries, n_first)
    return [of_one(row, found.of_query(row)) for row in range(len(queries))]


def _search_for_pool(
    index: Any, queries: FloatArray, k: int, *, allowed: IntArray | None = None
) -> Hits:
    """Return hits with vectors, of unit length where the index gives back approximations."""
    hits = search(index, queries, k, allowed=allowed)
    if lossy_part(index) is None:
        return hits
    hits.embeddings[~_are_hits(hits.ids, hits.scores)] = 0  # Faiss leaves NaN there
    return replace(hits, embeddings=of_unit_length(hits.embeddings))


def _kept(documents: Documents, hits: Hits, k: int, keep: Filter | None) -> Found:
    """Return the first k hits that have a document which passes, reading k at a time."""
    present = hits.ids.tolist()
    rows: list[int] = []
    kept: list[Document] = []
    for start in range(0, len(present), k):
        for row, document in enumerate(documents.of_ids(present[start : start + k]), start):
            if document is not None and (keep is None or keep(document.metadata)):
                rows.append(row)
                kept.append(document)
        if len(rows) >= k:
            break
    if len(rows) == len(present):  # as nearly always
        return Found(documents=kept, vectors=hits.embeddings)
    return Found(documents=kept[:k], vectors=hits.embeddings[rows[:k]])


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
