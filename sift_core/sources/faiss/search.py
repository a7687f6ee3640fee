"""Searching a Faiss index and getting its vectors back, whatever wraps it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sift_core.errors import CandidateSourceError, InvalidInputError, MissingDependencyError
from sift_core.types import FloatArray, IntArray

try:
    import faiss as _faiss
except ImportError as error:
    raise MissingDependencyError("faiss-cpu", extra="faiss") from error

faiss: Any = _faiss  # its own type stubs lack search parameters' arguments and HNSW's class

_GRAPHS = (faiss.IndexHNSW, faiss.IndexNSG, faiss.IndexNNDescent)
FAULTS = (RuntimeError, AssertionError)  # what Faiss raises

# GPU indexes refuse to return more neighbours than this (getMaxKSelection in Faiss).
MOST_HITS_ON_GPU = 2048
_EXACT_ON_GPU = ("GpuIndexFlat", "GpuIndexIVFFlat")  # and their L2 and IP kinds


@dataclass(frozen=True, kw_only=True, eq=False)
class BatchHits:
    """Nearest neighbours of b queries.

    Args:
        ids: Shape (b, k), nearest first; -1 where there are fewer than k.
        scores: Shape (b, k), inner products or distances, by the index's own metric.
        vectors: Shape (b, k, d), float32; of no meaning where the id is -1.
    """

    ids: IntArray
    scores: FloatArray
    vectors: FloatArray


def search(
    index: Any, queries: FloatArray, k: int, *, allowed: IntArray | None = None
) -> BatchHits:
    """Return the k nearest neighbours of each query with their vectors.

    The index's own settings hold (nprobe, max_codes, k_factor), but HNSW's efSearch is
    raised to k: a beam narrower than the answer returns short lists. A graph that still finds
    fewer than k is left aside and all its vectors compared, so only IVF, whose probed lists may
    hold fewer, returns less. No IVF index needs a direct map, and `IndexIDMap` gives its
    vectors back as `IndexIDMap2` does.

    Args:
        index: Any trained float index.
        queries: Shape (b, d), float32, contiguous.
        k: At most as many as the index holds.
        allowed: The only ids that may be returned; None for no restriction. Costs O(n) more
            for an index of n vectors. Graphs (HNSW, NSG) and codes that `IndexRefine` goes
            around are left aside and all allowed vectors compared, since a graph search that
            skips most nodes misses neighbours. Types that take no selector (PQ, fast scan) are
            asked for all that they hold, and their answer is thinned.

    Raises:
        RuntimeError: If Faiss fails, or the index type cannot give vectors back.
    """
    index = downcast(index)
    if isinstance(index, faiss.IndexIDMap):
        ids = id_map(index)
        positions = None if allowed is None else np.flatnonzero(np.isin(ids, allowed))
        hits = search(index.index, queries, k, allowed=positions)
        return replace(hits, ids=np.where(hits.ids >= 0, ids[hits.ids], -1))
    if isinstance(index, faiss.IndexPreTransform):
        for transform in transforms(index):
            queries = transform.apply(queries)
        hits = search(index.index, queries, k, allowed=allowed)
        rows = hits.vectors.reshape(hits.ids.size, -1)
        rows[hits.ids.ravel() < 0] = 0  # not the NaN that Faiss leaves there
        return replace(hits, vectors=_reversed(index, rows).reshape(*hits.ids.shape, index.d))
    if allowed is not None:
        return _search_among(_all_vectors(index), queries, k, allowed)
    options = {}
    if isinstance(index, faiss.IndexHNSW) and index.hnsw.efSearch < k:
        options["params"] = faiss.SearchParametersHNSW(
            efSearch=k, check_relative_distance=index.hnsw.check_relative_distance
        )
    scores, ids, vectors = index.search_and_reconstruct(queries, k, **options)
    if isinstance(index, _GRAPHS) and (ids < 0).any():  # parts that no path leads to
        return search(index.storage, queries, k)
    return BatchHits(ids=ids, scores=scores, vectors=vectors)


def _all_vectors(index: Any) -> Any:
    """Return the part of a graph, or of what refines codes, that compares all vectors."""
    if isinstance(index, _GRAPHS):
        return downcast(index.storage)
    return downcast(index.refine_index) if isinstance(index, faiss.IndexRefine) else index


def _search_among(index: Any, queries: FloatArray, k: int, allowed: IntArray) -> BatchHits:
    """Return the k nearest of the allowed ids from an index that wraps no other."""
    selector = faiss.IDSelectorBatch(np.ascontiguousarray(allowed, dtype=np.int64))
    params = faiss.SearchParameters(sel=selector)
    if isinstance(index, faiss.IndexIVF):
        settings = {"nprobe": index.nprobe, "max_codes": index.max_codes}
        params = faiss.SearchParametersIVF(sel=selector, **settings)
    try:
        scores, ids = index.search(queries, k, params=params)
    except RuntimeError:  # this type takes no selector
        all_scores, all_ids = index.search(queries, index.ntotal)
        scores = np.zeros((len(queries), k), dtype=np.float32)
        ids = np.full((len(queries), k), -1, dtype=np.int64)
        for row, found in enumerate(all_ids):
            kept = np.flatnonzero(np.isin(found, allowed))[:k]
            ids[row, : len(kept)] = found[kept]
            scores[row, : len(kept)] = all_scores[row, kept]
    vectors = np.zeros((*ids.shape, index.d), dtype=np.float32)
    if (ids >= 0).any():
        vectors[ids >= 0] = vectors_by_id(index, ids[ids >= 0])
    return BatchHits(ids=ids, scores=scores, vectors=vectors)


def vectors_by_id(index: Any, ids: IntArray) -> FloatArray:
    """Return the vectors of entries by id, shape (n, d), whatever wraps the index.

    O(ntotal) for an `IndexIDMap`, and for an IVF index without a direct map.

    Args:
        index: Any index of floats.
        ids: Shape (n,).

    Raises:
        LookupError: If an id is not there.
        RuntimeError: If Faiss fails, or the index type cannot give vectors back.
    """
    index = downcast(index)
    if isinstance(index, faiss.IndexIDMap):
        held = id_map(index)
        order = np.argsort(held, kind="stable")
        # Of an id that was given twice the last entry, as IndexIDMap2 takes it.
        places = np.searchsorted(held, ids, side="right", sorter=order) - 1
        positions = order[np.maximum(places, 0)]
        _check_are_there(ids, np.flatnonzero(held[positions] != ids))
        return vectors_by_id(index.index, positions)
    if isinstance(index, faiss.IndexPreTransform):
        return _reversed(index, np.ascontiguousarray(vectors_by_id(index.index, ids)))
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


def id_map(index: Any) -> IntArray:
    """Return the ids (n,) of an `IndexIDMap`, a view that the next change makes invalid.

    Raises:
        RuntimeError: If it holds vectors without ids, since an `add_with_ids` was interrupted.
    """
    if index.ntotal != index.index.ntotal:
        raise RuntimeError(
            f"{type(index).__name__} holds {index.ntotal} ids for {index.index.ntotal} vectors, "
            f"since a change of it was interrupted; load the source again"
        )
    ids: IntArray = faiss.rev_swig_ptr(index.id_map.data(), index.ntotal)
    return ids


def list_ids(index: Any, list_number: int) -> IntArray:
    """Return a copy of the ids in one list of an IVF index."""
    lists = index.invlists
    n = lists.list_size(list_number)
    if not n:
        return np.empty(0, dtype=np.int64)
    pointer = lists.get_ids(list_number)
    ids: IntArray = faiss.rev_swig_ptr(pointer, n).copy()
    lists.release_ids(list_number, pointer)
    return ids


def downcast(index: Any) -> Any:
    """Return `index` as its own class: what holds another index knows it as `Index` only."""
    return faiss.downcast_index(index) if type(index) is faiss.Index else index


def transforms(index: Any) -> list[Any]:
    """Return the transforms of an `IndexPreTransform`, as their own classes, in their order."""
    return [faiss.downcast_VectorTransform(index.chain.at(i)) for i in range(index.chain.size())]


def _reversed(index: Any, rows: FloatArray) -> FloatArray:
    """Return vectors (n, d) from before the transforms of an `IndexPreTransform`."""
    for transform in reversed(transforms(index)):
        rows = transform.reverse_transform(rows)
    return rows


def check_index(index: Any) -> None:
    """Refuse what is no index of float vectors that gives them back.

    Raises:
        InvalidInputError: Naming its type.
    """
    if isinstance(index, faiss.IndexBinary):
        raise InvalidInputError(
            f"`index` must hold vectors of floats, got {type(index).__name__}, which holds bits"
        )
    if not all(hasattr(index, name) for name in ("d", "ntotal", "search", "metric_type")):
        raise InvalidInputError(f"`index` must be a Faiss index, got {type(index).__name__}")
    inner = _innermost(index)
    if isinstance(inner, faiss.IndexIVFFastScan):  # Faiss 1.15 ends the process when it is loaded
        raise InvalidInputError(
            f"{type(inner).__name__} does not give its vectors back; put IndexRefineFlat around it"
        )


def is_on_gpu(index: Any) -> bool:
    """Return whether only one thread at a time may search an index, for at most 2,048 hits."""
    return type(_innermost(index)).__name__.startswith("GpuIndex")


def check_not_on_gpu(index: Any) -> None:
    """Refuse to change or save what no file can hold.

    Raises:
        InvalidInputError: If the index is on a GPU.
    """
    if is_on_gpu(index):
        raise InvalidInputError(
            f"{type(_innermost(index)).__name__} is on a GPU, where it can be neither changed nor "
            f"saved; convert it with faiss.index_gpu_to_cpu and take that"
        )


def _innermost(index: Any) -> Any:
    """Return what is inside `IndexIDMap` and `IndexPreTransform`."""
    index = downcast(index)
    wraps = isinstance(index, faiss.IndexIDMap | faiss.IndexPreTransform)
    return _innermost(index.index) if wraps else index


def lossy_part(index: Any) -> str | None:
    """Return the class that gives back other vectors than were added, or None.

    Rotations are exact to the rounding of float32, and normalising (L2norm) to the length.
    A type that is not known to be exact counts as lossy.
    """
    index = downcast(index)
    if isinstance(index, faiss.IndexIDMap):
        return lossy_part(index.index)
    if isinstance(index, faiss.IndexPreTransform):
        lossy = [transform for transform in transforms(index) if not _is_lossless(transform)]
        return type(lossy[0]).__name__ if lossy else lossy_part(index.index)
    index = _all_vectors(index)
    name = type(index).__name__
    is_exact = isinstance(index, faiss.IndexFlat | faiss.IndexIVFFlat)
    return None if is_exact or name.startswith(_EXACT_ON_GPU) else name


def _is_lossless(transform: Any) -> bool:
    if isinstance(transform, faiss.LinearTransform):
        is_rotation = transform.is_orthonormal or not transform.is_trained  # known by training
        return bool(is_rotation and transform.d_out >= transform.d_in)
    return isinstance(transform, faiss.NormalizationTransform | faiss.CenteringTransform)


def failed_search(index: Any, error: Exception) -> CandidateSourceError:
    """Return what to raise where Faiss fails."""
    return CandidateSourceError(
        f"Faiss {type(index).__name__} of {index.ntotal} vectors could not search and return "
        f"vectors: {error}; not every index type can give its vectors back (IndexFlat, HNSW and "
        f"IVF can)"
    )
