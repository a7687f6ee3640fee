"""Searching any Faiss index and getting its vectors back, whatever wraps it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from sift_core.errors import CandidateSourceError, InvalidInputError, MissingDependencyError
from sift_core.types import FloatArray, IntArray

try:
    import faiss as _faiss
except ImportError as error:
    raise MissingDependencyError("faiss-cpu", extra="faiss") from error

BoolArray: TypeAlias = npt.NDArray[np.bool_]

faiss: Any = _faiss  # its own type stubs lack search parameters' arguments and HNSW's class

_GRAPHS = (faiss.IndexHNSW, faiss.IndexNSG, faiss.IndexNNDescent)

# GPU indexes refuse to return more neighbours than this (getMaxKSelection in Faiss).
MOST_HITS_ON_GPU = 2048


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
    fewer than k is left aside and all its vectors compared (those of the `IndexRefine` around
    it where there is one), so only IVF, whose probed lists may
    hold fewer, returns less. No IVF index needs a direct map, and `IndexIDMap` gives its
    vectors back as `IndexIDMap2` does.

    Args:
        index: Any trained float index.
        queries: Shape (b, d), float32, contiguous.
        k: At most as many as the index holds.
        allowed: The only ids that may be returned; None for no restriction. Costs O(n) more
            for an index of n vectors. Graphs (HNSW, NSG) are left aside and all allowed
            vectors compared, since a graph search that skips most nodes misses neighbours.
            Types that take no selector (PQ, fast scan, additive quantizers) are asked for
            all that they hold, and their answer is thinned.

    Raises:
        RuntimeError: If Faiss fails, or the index type cannot give vectors back.
    """
    index = downcast(index)
    if isinstance(index, faiss.IndexIDMap):
        check_ids_complete(index)
        positions = None
        if allowed is not None:
            positions = np.flatnonzero(np.isin(id_map(index), allowed))
        hits = search(index.index, queries, k, allowed=positions)
        return replace(hits, ids=_translated(hits.ids, id_map(index)))
    if isinstance(index, faiss.IndexPreTransform):
        return _search_transformed(index, queries, k, allowed)
    if allowed is not None:
        if _is_graph(index):
            return search(_all_vectors(index), queries, k, allowed=allowed)
        return _search_among(index, queries, k, allowed)
    if isinstance(index, faiss.IndexIVFFastScan):  # refuses search_and_reconstruct
        scores, ids = index.search(queries, k)
        return BatchHits(ids=ids, scores=scores, vectors=_vectors_of(index, queries, ids))
    options = {}
    if isinstance(index, faiss.IndexHNSW) and index.hnsw.efSearch < k:
        options["params"] = faiss.SearchParametersHNSW(
            efSearch=k, check_relative_distance=index.hnsw.check_relative_distance
        )
    scores, ids, vectors = index.search_and_reconstruct(queries, k, **options)
    if _is_graph(index) and (ids < 0).any():  # parts that no path leads to
        return search(_all_vectors(index), queries, k)
    return BatchHits(ids=ids, scores=scores, vectors=vectors)


def _is_graph(index: Any) -> bool:
    """Return whether a graph finds what an index returns, also where another refines that."""
    index = downcast(index)
    if isinstance(index, faiss.IndexRefine):
        return _is_graph(index.base_index)
    if isinstance(index, faiss.IndexPreTransform | faiss.IndexIDMap):
        return _is_graph(index.index)
    return isinstance(index, _GRAPHS)


def _all_vectors(graph: Any) -> Any:
    """Return the part of a graph, or of what refines one, that compares all vectors."""
    return graph.refine_index if isinstance(graph, faiss.IndexRefine) else graph.storage


def _search_transformed(
    index: Any, queries: FloatArray, k: int, allowed: IntArray | None
) -> BatchHits:
    chain = transforms(index)
    for transform in chain:
        queries = transform.apply(queries)
    hits = search(index.index, queries, k, allowed=allowed)
    rows = hits.vectors.reshape(hits.ids.size, -1)
    rows[hits.ids.ravel() < 0] = 0  # not the NaN that Faiss leaves there
    for transform in reversed(chain):
        rows = transform.reverse_transform(rows)
    return replace(hits, vectors=rows.reshape(*hits.ids.shape, index.d))


def _search_among(index: Any, queries: FloatArray, k: int, allowed: IntArray) -> BatchHits:
    """Return the k nearest of the allowed ids from an index that wraps no other ids."""
    selected = _selected(index, queries, k, allowed)
    if selected is None:
        all_scores, all_ids = index.search(queries, index.ntotal)
        scores = np.zeros((len(queries), k), dtype=np.float32)
        ids: IntArray = np.full((len(queries), k), -1, dtype=np.int64)
        for row, found in enumerate(all_ids):
            kept = np.flatnonzero(np.isin(found, allowed))[:k]
            ids[row, : len(kept)] = found[kept]
            scores[row, : len(kept)] = all_scores[row, kept]
    else:
        scores, ids = selected
    return BatchHits(ids=ids, scores=scores, vectors=_vectors_of(index, queries, ids))


def _selected(
    index: Any, queries: FloatArray, k: int, allowed: IntArray
) -> tuple[FloatArray, IntArray] | None:
    """Return what Faiss finds by a selector, (b, k) each; None if this type takes none."""
    if isinstance(index, faiss.IndexIVFAdditiveQuantizer):  # up to Faiss 1.13, ends the process
        return None
    selector = faiss.IDSelectorBatch(np.ascontiguousarray(allowed, dtype=np.int64))
    try:
        scores, ids = index.search(queries, k, params=_parameters(index, selector))
    except RuntimeError:
        return None
    return scores, ids


def _vectors_of(index: Any, queries: FloatArray, ids: IntArray) -> FloatArray:
    """Return the vectors (b, k, d) of what these queries found; zeros where an id is -1."""
    _restore_decoder(index)
    vectors = np.zeros((*ids.shape, index.d), dtype=np.float32)
    if _has_no_direct_map(index):
        for row in range(len(queries)):
            _read_lists(index, _probed(index, queries[row : row + 1]), ids[row], vectors[row])
        return vectors
    found = ids >= 0
    if found.any():
        vectors[found] = index.reconstruct_batch(ids[found])
    return vectors


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
        check_ids_complete(index)
        held = id_map(index)
        order = np.argsort(held, kind="stable")
        # Of an id that was given twice the last entry, as IndexIDMap2 takes it.
        places = np.searchsorted(held, ids, side="right", sorter=order) - 1
        positions = order[np.maximum(places, 0)]
        _check_are_there(ids, held[positions] == ids)
        return vectors_by_id(index.index, positions)
    if isinstance(index, faiss.IndexPreTransform):
        vectors = np.ascontiguousarray(vectors_by_id(index.index, ids))
        for transform in reversed(transforms(index)):
            vectors = transform.reverse_transform(vectors)
        return vectors
    _restore_decoder(index)
    if _has_no_direct_map(index):
        distinct, rows = np.unique(ids, return_inverse=True)
        vectors = np.zeros((len(distinct), index.d), dtype=np.float32)
        is_missing = _read_lists(index, [], distinct, vectors)
        _check_are_there(distinct, (distinct >= 0) & ~is_missing)
        return vectors[rows]
    if not isinstance(index, faiss.IndexIVF):  # which looks by itself; others read any memory
        _check_are_there(ids, (ids >= 0) & (ids < index.ntotal))
    found: FloatArray = index.reconstruct_batch(ids)
    return found


def _check_are_there(ids: IntArray, is_there: BoolArray) -> None:
    if not is_there.all():
        raise LookupError(f"it has no entry {ids[~is_there][0]}")


def _has_no_direct_map(index: Any) -> bool:
    is_ivf = isinstance(index, faiss.IndexIVF)
    return is_ivf and index.direct_map.type == faiss.DirectMap.NoMap


def _restore_decoder(index: Any) -> None:
    """Give an IVF fast-scan index that was read from a file its decoder back.

    Faiss 1.15 forgets to, and kills the process when asked for a vector then.
    """
    decodes_otherwise = "RaBitQ" in type(index).__name__
    if not isinstance(index, faiss.IndexIVFFastScan) or decodes_otherwise:
        return
    if getattr(index, "fine_quantizer", index) is None:
        index.fine_quantizer = index.pq if hasattr(index, "pq") else index.aq


def _probed(index: Any, query: FloatArray) -> list[int]:
    _, probed = index.quantizer.search(query, min(index.nprobe, index.nlist))
    numbers: list[int] = probed[0][probed[0] >= 0].tolist()
    return numbers


def _read_lists(index: Any, likely: list[int], ids: IntArray, vectors: FloatArray) -> BoolArray:
    """Write the vectors of `ids` (k,) into `vectors` (k, d); return which are missing (k,).

    Costs one comparison for each entry of the likely lists: little beside their search. Another
    list is read only where rounding made Faiss probe it for a batch and not for one query.
    """
    order = np.argsort(ids)
    wanted = ids[order]
    is_missing = wanted >= 0
    row = np.empty(index.d, dtype=np.float32)
    for list_number in itertools.chain(likely, range(index.nlist)):
        if not is_missing.any():
            break
        entries = list_ids(index, list_number)
        places = np.minimum(np.searchsorted(wanted, entries), len(wanted) - 1)
        for offset in np.flatnonzero((wanted[places] == entries) & is_missing[places]).tolist():
            index.reconstruct_from_offset(list_number, offset, faiss.swig_ptr(row))
            vectors[order[places[offset]]] = row
            is_missing[places[offset]] = False
    left = np.empty_like(is_missing)
    left[order] = is_missing
    return left


def _parameters(index: Any, selector: Any) -> Any:
    """Return Faiss' search parameters that repeat the index's own settings.

    Their type must be that of the index.
    """
    if isinstance(index, faiss.IndexIVFPQ):
        return faiss.IVFPQSearchParameters(
            sel=selector,
            nprobe=index.nprobe,
            max_codes=index.max_codes,
            scan_table_threshold=index.scan_table_threshold,
            polysemous_ht=index.polysemous_ht,
        )
    if isinstance(index, faiss.IndexIVF):
        return faiss.SearchParametersIVF(
            sel=selector, nprobe=index.nprobe, max_codes=index.max_codes
        )
    if isinstance(index, faiss.IndexRefine):
        return faiss.IndexRefineSearchParameters(
            k_factor=index.k_factor,
            base_index_params=_parameters(downcast(index.base_index), selector),
        )
    return faiss.SearchParameters(sel=selector)


def id_map(index: Any) -> IntArray:
    """Return the ids (n,) of an `IndexIDMap`, a view that the next change makes invalid."""
    ids: IntArray = faiss.rev_swig_ptr(index.id_map.data(), index.ntotal)
    return ids


def check_ids_complete(index: Any) -> None:
    """Refuse an `IndexIDMap` that holds vectors without ids; any other index passes.

    Raises:
        RuntimeError: If the two differ, since an `add_with_ids` was interrupted.
    """
    index = downcast(index)
    if isinstance(index, faiss.IndexIDMap) and index.ntotal != index.index.ntotal:
        raise RuntimeError(
            f"{type(index).__name__} holds {index.ntotal} ids for {index.index.ntotal} vectors, "
            f"since a change of it was interrupted; load the source again"
        )


def _translated(positions: IntArray, ids: IntArray) -> IntArray:
    return np.where(positions >= 0, ids[positions], -1)


def downcast(index: Any) -> Any:
    """Return `index` as its own class: what holds another index knows it as `Index` only."""
    return faiss.downcast_index(index) if type(index) is faiss.Index else index


def transforms(index: Any) -> list[Any]:
    """Return the transforms of an `IndexPreTransform`, as their own classes, in their order."""
    return [faiss.downcast_VectorTransform(index.chain.at(i)) for i in range(index.chain.size())]


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


def check_index(index: Any) -> None:
    """Refuse what is no index of float vectors.

    Raises:
        InvalidInputError: Naming its type.
    """
    if isinstance(index, faiss.IndexBinary):
        raise InvalidInputError(
            f"`index` must hold vectors of floats, got {type(index).__name__}, which holds bits"
        )
    if not all(hasattr(index, name) for name in ("d", "ntotal", "search", "metric_type")):
        raise InvalidInputError(f"`index` must be a Faiss index, got {type(index).__name__}")


def _parts(index: Any) -> Iterator[Any]:
    """Yield an index and all those inside it, as their own classes."""
    index = downcast(index)
    yield index
    for name in ("index", "base_index", "refine_index", "storage", "quantizer"):
        inner = getattr(index, name, None)
        if isinstance(inner, faiss.Index):
            yield from _parts(inner)
    if isinstance(index, faiss.IndexReplicas | faiss.IndexShards):
        for i in range(index.count()):
            yield from _parts(index.at(i))


def runs_on_gpu(index: Any) -> bool:
    """Return whether an index or anything inside it lives on a GPU."""
    return any(type(part).__name__.startswith("GpuIndex") for part in _parts(index))


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
    if isinstance(index, faiss.IndexRefine):
        return lossy_part(index.refine_index)
    if isinstance(index, _GRAPHS):
        return lossy_part(index.storage)
    if isinstance(index, faiss.IndexReplicas | faiss.IndexShards) and index.count():
        return lossy_part(index.at(0))
    name = type(index).__name__
    is_exact = isinstance(index, faiss.IndexFlat | faiss.IndexIVFFlat) or name.startswith(
        ("GpuIndexFlat", "GpuIndexIVFFlat", "GpuIndexCagra")
    )
    return None if is_exact else name


def _is_lossless(transform: Any) -> bool:
    if isinstance(transform, faiss.LinearTransform):
        is_rotation = transform.is_orthonormal or not transform.is_trained  # known by training
        return bool(is_rotation and transform.d_out >= transform.d_in)
    if isinstance(transform, faiss.RemapDimensionsTransform):
        kept = faiss.vector_to_array(transform.map)
        return bool(len(set(kept[kept >= 0].tolist())) == transform.d_in)
    return isinstance(transform, faiss.NormalizationTransform | faiss.CenteringTransform)


def unit_rows(vectors: FloatArray) -> FloatArray:
    """Return the vectors (..., d) with unit length, float32; zeros stay zero."""
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=-1, keepdims=True)
    scaled: FloatArray = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return scaled


def failed_search(index: Any, error: Exception) -> CandidateSourceError:
    """Return what to raise where Faiss fails."""
    on_gpu = runs_on_gpu(index)
    advice = (
        f"a GPU index returns at most {MOST_HITS_ON_GPU} hits and takes few filters; "
        f"faiss.index_gpu_to_cpu makes one without these limits"
        if on_gpu
        else "not every index type can give its vectors back (IndexFlat, HNSW and IVF can)"
    )
    return CandidateSourceError(
        f"Faiss {type(index).__name__} of {index.ntotal} vectors could not search and return "
        f"vectors: {error}; {advice}"
    )
