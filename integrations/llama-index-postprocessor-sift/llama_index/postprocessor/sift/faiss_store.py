"""Vectors by node id from LlamaIndex's two Faiss stores, which know row numbers alone."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from llama_index.core import VectorStoreIndex

Vector = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Rows:
    """The way from node ids to Faiss rows, and how the way back looked when it was made."""

    by_node_id: dict[str, str]
    made_of: Hashable


_rows: weakref.WeakKeyDictionary[VectorStoreIndex, _Rows] = weakref.WeakKeyDictionary()
_making = threading.Lock()


def faiss_vectors(
    index: VectorStoreIndex, node_ids: Sequence[str], *, is_map: bool
) -> Vector | list[Vector | None]:
    """Return each node's vector, shape (d,), None where the store has none; (n, d) if it has all.

    Takes O(nodes asked for) time. The first call for an index, and one after nodes were added
    to it, also reads all its ids: some 10 ms for 100,000, which then stay in memory (a
    dictionary of references) as long as the index.

    Args:
        index: Over a FaissVectorStore or a FaissMapVectorStore.
        node_ids: n ids.
        is_map: Whether it is the second of these.

    Raises:
        CandidateSourceError: If Faiss fails, or has not the rows that the index says it has.
    """
    from sift_core.sources.faiss import stored_vectors

    store: Any = index.vector_store
    rows = _mapped_rows(store, node_ids) if is_map else _rows_of(index, node_ids)
    found: Vector = stored_vectors(store.client, [row for row in rows if row is not None])
    if len(found) == len(rows):
        return found
    each = iter(found)
    return [None if row is None else next(each) for row in rows]


def _rows_of(index: VectorStoreIndex, node_ids: Sequence[str]) -> list[int | None]:
    """Return the rows that mean these nodes according to the index itself."""
    nodes_dict: dict[str, str] = index.index_struct.nodes_dict
    known = _rows.get(index)
    if known is None or known.made_of != _looks_of(nodes_dict):
        with _making:
            known = _rows.get(index)
            if known is None or known.made_of != _looks_of(nodes_dict):
                copied = nodes_dict.copy()  # another thread may be adding nodes
                by_node_id = dict(zip(copied.values(), copied.keys(), strict=True))
                known = _Rows(by_node_id=by_node_id, made_of=_looks_of(copied))
                _rows[index] = known
    rows = list(map(known.by_node_id.get, node_ids))
    means = map(nodes_dict.get, rows)  # type: ignore[arg-type]  # None means no node
    return [
        int(row) if row is not None and meant == node_id else None
        for row, meant, node_id in zip(rows, means, node_ids, strict=True)
    ]


def _looks_of(nodes_dict: dict[str, str]) -> Hashable:
    """Return what is different after nodes were added or removed; rows count upwards."""
    if not nodes_dict:
        return ()
    try:
        first, last = next(iter(nodes_dict)), next(reversed(nodes_dict))
    except RuntimeError:  # another thread has added a node just now
        return object()
    return len(nodes_dict), first, nodes_dict.get(first), last, nodes_dict.get(last)


def _mapped_rows(store: Any, node_ids: Sequence[str]) -> list[int | None]:
    """Return the Faiss ids that still mean their node.

    FaissMapVectorStore may give a deleted vector's successor an id that is in use
    (seen in 0.7.0); the way back then leads to another node.
    """
    forward, back = store._node_id_to_faiss_id_map, store._faiss_id_to_node_id_map
    rows = (forward.get(node_id) for node_id in node_ids)
    return [row if back.get(row) == i else None for row, i in zip(rows, node_ids, strict=True)]
