"""Checks what a retriever is told, so that nothing is ignored silently at query time."""

from __future__ import annotations

from typing import Any

from llama_index.core import VectorStoreIndex
from llama_index.core.vector_stores.types import VectorStoreQueryMode

from llama_index.postprocessor.sift.stored_vectors import StoreKind, store_kind
from sift_core import InvalidInputError

_NAMES = {"alpha": "hybrid_alpha"}  # what the retriever calls it

# What these stores take without a word and do not look at, or refuse in every query.
_IGNORED: dict[StoreKind, tuple[str, ...]] = {
    "faiss": ("filters", "node_ids", "doc_ids", "alpha", "sparse_top_k", "hybrid_top_k"),
    "faiss map": ("filters", "node_ids", "doc_ids", "alpha", "sparse_top_k", "hybrid_top_k"),
    "simple": ("doc_ids", "alpha", "sparse_top_k", "hybrid_top_k"),
}


def checked_options(
    index: VectorStoreIndex, *, vector_store_query_mode: VectorStoreQueryMode | str, **options: Any
) -> dict[str, Any]:
    """Return arguments for `VectorIndexRetriever`; options that are None are left out.

    Raises:
        InvalidInputError: If `index` is no vector index, the mode is not known or would choose
            by itself, or the index's store would not do what an option says.
    """
    if not isinstance(index, VectorStoreIndex):
        raise InvalidInputError(
            f"`index` must be a VectorStoreIndex, got {type(index).__name__}; "
            f"VectorStoreIndex.from_vector_store makes one of a store"
        )
    try:
        mode = VectorStoreQueryMode(vector_store_query_mode)
    except ValueError as error:
        known = ", ".join(repr(mode.value) for mode in VectorStoreQueryMode)
        raise InvalidInputError(
            f"`vector_store_query_mode` must be one of {known}, got {vector_store_query_mode!r}"
        ) from error
    if mode == VectorStoreQueryMode.MMR:
        raise InvalidInputError(
            "`vector_store_query_mode` must not be 'mmr': it would choose before SIFT can, and "
            "Qdrant and Faiss ignore it; leave it out"
        )
    store = index.vector_store
    kind = store_kind(store)
    given = {name: value for name, value in options.items() if value is not None}
    for name in _IGNORED.get(kind, ()):
        if name in given:
            raise InvalidInputError(
                f"{type(store).__name__} cannot take `{_NAMES.get(name, name)}` into account; "
                f"leave it out, or keep the nodes in a store that can, such as Qdrant"
            )
    if mode not in _modes_of(store, kind):
        raise InvalidInputError(
            f"{type(store).__name__} would not search by `vector_store_query_mode` "
            f"{mode.value!r}; leave it out (Qdrant has 'hybrid' and 'sparse' with "
            f"`enable_hybrid=True`)"
        )
    for name in ("node_ids", "doc_ids"):
        if name in given:
            given[name] = list(given[name])
            if not given[name]:  # stores take it for no restriction
                raise InvalidInputError(f"`{name}` must not be empty; None is for all")
    return {**given, "vector_store_query_mode": mode}


def _modes_of(store: Any, kind: StoreKind) -> set[VectorStoreQueryMode]:
    """Return the modes that a store does not silently take for the default one."""
    if kind in ("simple", "other"):  # these refuse what they cannot do
        return set(VectorStoreQueryMode)
    if kind == "qdrant" and store.enable_hybrid:
        modes = VectorStoreQueryMode
        return {modes.DEFAULT, modes.HYBRID, modes.SPARSE}
    return {VectorStoreQueryMode.DEFAULT}


def checked_counts(
    top_n: int, candidates: int, max_candidates: int | None
) -> tuple[int, int | None]:
    """Return how many candidates to fetch, and how many at most where more are needed.

    Raises:
        InvalidInputError: Unless 1 <= top_n <= candidates <= max_candidates.
    """
    counts = {"top_n": top_n, "candidates": candidates, "max_candidates": max_candidates}
    for name, count in counts.items():
        is_count = isinstance(count, int) and not isinstance(count, bool) and count >= 1
        if not is_count and not (count is None and name == "max_candidates"):
            raise InvalidInputError(f"`{name}` must be a whole number >= 1, got {count!r}")
    if candidates < top_n:
        raise InvalidInputError(f"`candidates` must be >= `top_n`, got {candidates} and {top_n}")
    if max_candidates is not None and max_candidates < candidates:
        raise InvalidInputError(
            f"`max_candidates` must be >= `candidates`, got {max_candidates} and {candidates}"
        )
    return candidates, max_candidates
