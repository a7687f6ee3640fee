"""Vectors by node id from LlamaIndex's two Faiss stores, which know row numbers alone."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from llama_index.core import VectorStoreIndex

from llama_index.postprocessor.sift.matrix_rows import MatrixRows

_logger = logging.getLogger(__name__)

# What Faiss says where an index type cannot give its vectors back, as opposed to failing.
_CANNOT = ("reconstruct not implemented", "direct map not initialized")


@dataclass(frozen=True, kw_only=True, eq=False)
class _Rows:
    """The way from node ids to Faiss rows, and how the way back looked when it was made."""

    by_node_id: dict[str, str]
    made_of: Hashable


_rows: weakref.WeakKeyDictionary[VectorStoreIndex, _Rows] = weakref.WeakKeyDictionary()
_making = threading.Lock()


def faiss_vectors(index: VectorStoreIndex, node_ids: Sequence[str], *, is_map: bool) -> MatrixRows:
    """Return the vectors of the nodes that a Faiss store has, by node id.

    Takes O(nodes asked for) time. The first call for an index, and one after nodes were added
    to it, also reads all its ids: some 10 ms for 100,000, which then stay in memory (a
    dictionary of references) as long as the index.

    Args:
        index: Over a FaissVectorStore or a FaissMapVectorStore.
        node_ids: What to look up; those that are not there are left out.
        is_map: Whether it is the second of these.
    """
    store: Any = index.vector_store
    faiss_index = store.client
    if is_map:
        rows = _mapped_rows(store, node_ids)
    else:
        rows = _rows_of(index, node_ids)
    positions = np.array(list(rows.values()), dtype=np.int64)
    ids = list(rows)
    if not is_map:
        # Faiss reads outside its memory when asked for a row that it does not have.
        is_there = (positions >= 0) & (positions < faiss_index.ntotal)
        if not is_there.all():
            ids = [ids[i] for i in np.flatnonzero(is_there).tolist()]
            positions = positions[is_there]
    if not ids:
        return MatrixRows([], np.empty((0, faiss_index.d), dtype=np.float32))
    try:
        return MatrixRows(ids, faiss_index.reconstruct_batch(positions))
    except RuntimeError as error:
        if not any(reason in str(error) for reason in _CANNOT):
            raise
        _logger.warning(
            "Faiss %s cannot give its vectors back; call its make_direct_map() once, or "
            "build an IndexIDMap2 instead of an IndexIDMap",
            type(faiss_index).__name__,
        )
        return MatrixRows([], np.empty((0, faiss_index.d), dtype=np.float32))


def _rows_of(index: VectorStoreIndex, node_ids: Sequence[str]) -> dict[str, int]:
    """Return the rows that mean their node according to the index itself."""
    nodes_dict: dict[str, str] = index.index_struct.nodes_dict
    known = _rows.get(index)
    if known is not None and known.made_of == _looks_of(nodes_dict):
        return _verified(known, nodes_dict, node_ids)
    with _making:
        known = _rows.get(index)
        if known is None or known.made_of != _looks_of(nodes_dict):
            copied = nodes_dict.copy()  # another thread may be adding nodes
            by_node_id = dict(zip(copied.values(), copied.keys(), strict=True))
            known = _Rows(by_node_id=by_node_id, made_of=_looks_of(copied))
            _rows[index] = known
    return _verified(known, nodes_dict, node_ids)


def _verified(
    known: _Rows, nodes_dict: Mapping[str, str], node_ids: Sequence[str]
) -> dict[str, int]:
    rows = {}
    for node_id in node_ids:
        row = known.by_node_id.get(node_id)
        if row is not None and nodes_dict.get(row) == node_id:
            rows[node_id] = int(row)
    return rows


def _looks_of(nodes_dict: dict[str, str]) -> Hashable:
    """Return what is different after nodes were added or removed; rows count upwards."""
    if not nodes_dict:
        return ()
    try:
        first, last = next(iter(nodes_dict)), next(reversed(nodes_dict))
    except RuntimeError:  # another thread has added a node just now
        return object()
    return len(nodes_dict), first, nodes_dict.get(first), last, nodes_dict.get(last)


def _mapped_rows(store: Any, node_ids: Sequence[str]) -> dict[str, int]:
    """Return the Faiss ids that still mean their node.

    FaissMapVectorStore may give a deleted vector's successor an id that is in use
    (seen in 0.7.0); the way back then leads to another node.
    """
    forward, back = store._node_id_to_faiss_id_map, store._faiss_id_to_node_id_map
    return {i: forward[i] for i in node_ids if i in forward and back.get(forward[i]) == i}
