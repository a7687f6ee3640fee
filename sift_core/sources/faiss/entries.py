"""The entries of a Faiss index: their ids, and changing them without mixing them up."""

from __future__ import annotations

from typing import Any

import numpy as np

from sift_core.errors import InvalidInputError
from sift_core.sources.faiss.search import downcast, faiss, id_map, list_ids, runs_on_gpu
from sift_core.types import FloatArray, IntArray


def entry_ids(index: Any) -> IntArray:
    """Return the ids of all entries, shape (ntotal,), in no particular order."""
    index = downcast(index)
    if isinstance(index, faiss.IndexIDMap):
        return id_map(index).copy()
    if isinstance(index, faiss.IndexPreTransform):
        return entry_ids(index.index)
    if isinstance(index, faiss.IndexIVF):
        return np.concatenate([list_ids(index, number) for number in range(index.nlist)])
    return np.arange(index.ntotal, dtype=np.int64)


def takes_ids(index: Any) -> bool:
    """Return whether entries keep ids of their own; elsewhere they are counted 0, 1, ..."""
    index = downcast(index)
    if isinstance(index, faiss.IndexPreTransform):
        return takes_ids(index.index)
    return isinstance(index, faiss.IndexIDMap | faiss.IndexIVF)


def add_entries(index: Any, ids: IntArray, vectors: FloatArray) -> None:
    """Add vectors (n, d), float32, under ids (n,); where ids are counted, these must be next.

    Raises:
        RuntimeError: If Faiss fails.
    """
    if takes_ids(index):
        index.add_with_ids(vectors, np.ascontiguousarray(ids, dtype=np.int64))
    else:
        index.add(vectors)


def remove_entries(index: Any, ids: IntArray) -> None:
    """Remove entries where the index can do that without mixing up its ids.

    Elsewhere nothing is removed, and a search must leave out what has no document: graphs, and
    IVF with an array for a direct map, cannot remove; where ids are counted, those of later
    entries would shift; so they would in an `IndexIDMap` around IVF, which Faiss gets wrong
    (1.15). Costs O(n).

    Raises:
        RuntimeError: If Faiss fails.
    """
    if not len(ids) or not _removes(index):
        return
    ids = np.ascontiguousarray(ids, dtype=np.int64)
    ivf = faiss.try_extract_index_ivf(index)
    if ivf is not None and ivf.direct_map.type == faiss.DirectMap.Hashtable:
        index.remove_ids(faiss.IDSelectorArray(ids))  # the only kind that it takes
    else:
        index.remove_ids(ids)


def _removes(index: Any) -> bool:
    index = downcast(index)
    if isinstance(index, faiss.IndexPreTransform):
        return _removes(index.index)
    if isinstance(index, faiss.IndexIDMap):
        return isinstance(_untransformed(index.index), faiss.IndexFlatCodes)
    if not isinstance(index, faiss.IndexIVF) or isinstance(index, faiss.IndexIVFFastScan):
        return False
    return bool(index.direct_map.type != faiss.DirectMap.Array)


def _untransformed(index: Any) -> Any:
    index = downcast(index)
    return _untransformed(index.index) if isinstance(index, faiss.IndexPreTransform) else index


def starting_form(index: Any) -> Any:
    """Return the index; around an empty one of flat codes, an `IndexIDMap2`.

    That keeps ids, so that its entries can be removed.
    """
    is_plain = isinstance(_untransformed(index), faiss.IndexFlatCodes)
    return faiss.IndexIDMap2(index) if is_plain and index.ntotal == 0 else index


def check_not_on_gpu(index: Any) -> None:
    """Refuse an index that cannot be written to a file.

    Raises:
        InvalidInputError: If it, or a part of it, is on a GPU.
    """
    if runs_on_gpu(index):
        raise InvalidInputError(
            f"{type(downcast(index)).__name__} is on a GPU, where it cannot be saved or added to "
            f"durably; convert it with faiss.index_gpu_to_cpu and take that"
        )


def check_can_grow(index: Any) -> None:
    """Refuse an index to which vectors cannot be added one batch after another.

    Raises:
        InvalidInputError: If it is not trained, on a GPU, of a type that is built once (NSG), or
            an IVF index with a direct map in the form of an array.
    """
    check_not_on_gpu(index)
    if not index.is_trained:
        raise InvalidInputError(
            f"{type(downcast(index)).__name__} is not trained; call its `train` with a sample of "
            f"embeddings, before it is saved for the first time"
        )
    _check_grows(index)


def _check_grows(index: Any) -> None:
    index = downcast(index)
    if isinstance(index, faiss.IndexIDMap | faiss.IndexPreTransform):
        _check_grows(index.index)
    elif isinstance(index, faiss.IndexRefine):
        _check_grows(index.base_index)
        _check_grows(index.refine_index)
    elif isinstance(index, faiss.IndexIVF):
        if index.direct_map.type == faiss.DirectMap.Array:
            raise InvalidInputError(
                f"{type(index).__name__} has a direct map that takes no ids; call its "
                f"`set_direct_map_type(faiss.DirectMap.NoMap)`: fetching needs none"
            )
    elif not isinstance(index, faiss.IndexFlatCodes | faiss.IndexHNSW | faiss.IndexFastScan):
        raise InvalidInputError(
            f"{type(index).__name__} cannot be added to one batch after another; build it from all "
            f"vectors at once and save that, or take Flat, HNSW or IVF"
        )
