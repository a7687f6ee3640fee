"""A Faiss index: what kind it is, the ids of its entries, and changing them without a mix-up."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from sift_core.checks import as_finite_array, check_text
from sift_core.errors import (
    CandidateSourceError,
    InvalidInputError,
    LossyVectorsWarning,
    MissingDependencyError,
)
from sift_core.sources.content_ids import content_id
from sift_core.types import Document, FloatArray, IntArray

try:
    import faiss as _faiss
except ImportError as error:
    raise MissingDependencyError("faiss-cpu", extra="faiss") from error

faiss: Any = _faiss  # its own type stubs lack search parameters' arguments and HNSW's class

GRAPHS = (faiss.IndexHNSW, faiss.IndexNSG, faiss.IndexNNDescent)

# GPU indexes refuse to return more neighbours than this (getMaxKSelection in Faiss).
MOST_HITS_ON_GPU = 2048
_EXACT_ON_GPU = ("GpuIndexFlat", "GpuIndexIVFFlat")  # and their L2 and IP kinds


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


def check_same_embedder(stored: str | None, name: str | None) -> None:
    """Refuse to mix vectors of two embedders.

    Raises:
        InvalidInputError: Naming both.
    """
    if stored not in (None, name):
        raise InvalidInputError(
            f"the index holds vectors of {stored!r}, which cannot be mixed with those of "
            f"{name!r}; pass that embedder, or index into a new folder"
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
    index = all_vectors(index)
    name = type(index).__name__
    is_exact = isinstance(index, faiss.IndexFlat | faiss.IndexIVFFlat)
    return None if is_exact or name.startswith(_EXACT_ON_GPU) else name


def warn_if_lossy(index: Any, *, stacklevel: int) -> None:
    """Say that vectors come back as approximations, where they do."""
    if (lossy := lossy_part(index)) is not None:
        warnings.warn(
            f"{lossy} gives back approximations of the vectors that were added, which are brought "
            f"to unit length; for exact ones put IndexRefineFlat around the index, or take Flat, "
            f"IVFFlat or HNSWFlat",
            LossyVectorsWarning,
            stacklevel=stacklevel,
        )


def _is_lossless(transform: Any) -> bool:
    if isinstance(transform, faiss.LinearTransform):
        is_rotation = transform.is_orthonormal or not transform.is_trained  # known by training
        return bool(is_rotation and transform.d_out >= transform.d_in)
    return isinstance(transform, faiss.NormalizationTransform | faiss.CenteringTransform)


def entry_ids(index: Any) -> IntArray:
    """Return the ids of all entries, shape (ntotal,), in no particular order."""
    index = _untransformed(index)
    if isinstance(index, faiss.IndexIDMap):
        return id_map(index).copy()
    if isinstance(index, faiss.IndexIVF):
        return np.concatenate([list_ids(index, number) for number in range(index.nlist)])
    return np.arange(index.ntotal, dtype=np.int64)


def as_ids(name: str, ids: Sequence[int] | IntArray) -> IntArray:
    """Return ids (n,) as Faiss keeps them: an unsigned one from 2^63 is negative there.

    Raises:
        InvalidInputError: If they are not integers.
    """
    asked = np.asarray(ids)
    if asked.size and (asked.ndim != 1 or asked.dtype.kind not in "iu"):
        raise InvalidInputError(
            f"`{name}` must be integers, shape (n,), got {asked.dtype} of shape {asked.shape}"
        )
    return np.ascontiguousarray(asked, dtype=np.int64)


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


def downcast(index: Any) -> Any:
    """Return `index` as its own class: what holds another index knows it as `Index` only."""
    return faiss.downcast_index(index) if type(index) is faiss.Index else index


def transforms(index: Any) -> list[Any]:
    """Return the transforms of an `IndexPreTransform`, as their own classes, in their order."""
    return [faiss.downcast_VectorTransform(index.chain.at(i)) for i in range(index.chain.size())]


def all_vectors(index: Any) -> Any:
    """Return the part of a graph, or of what refines codes, that compares all vectors."""
    if isinstance(index, GRAPHS):
        return downcast(index.storage)
    return downcast(index.refine_index) if isinstance(index, faiss.IndexRefine) else index


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


def _innermost(index: Any) -> Any:
    """Return what is inside `IndexIDMap` and `IndexPreTransform`."""
    index = downcast(index)
    wraps = isinstance(index, faiss.IndexIDMap | faiss.IndexPreTransform)
    return _innermost(index.index) if wraps else index


def _untransformed(index: Any) -> Any:
    """Return what an `IndexPreTransform` holds; any other index as it is."""
    index = downcast(index)
    return _untransformed(index.index) if isinstance(index, faiss.IndexPreTransform) else index


def _failed(index: Any, error: Exception) -> CandidateSourceError:
    return CandidateSourceError(
        f"Faiss could not change the {type(downcast(index)).__name__} in memory: {error}; load the "
        f"source again"
    )
