"""How alike query and nodes are, and whether their vectors can be compared at all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from llama_index.core.schema import NodeWithScore

from sift_core import InvalidInputError

_SAFE_FLOAT32 = np.float32(1e-30)  # the same for float32
_SAFE = 1e-200  # a sum of squares beyond this or its inverse may have left float64


def cosines(
    query_embedding: npt.NDArray[np.floating],
    nodes: Sequence[NodeWithScore],
    embeddings: npt.NDArray[np.floating],
) -> npt.NDArray[np.float64]:
    """Return the cosine of the query and each node, shape (n,), in [-1, 1].

    To 1e-6 where the nodes' vectors are float32, as stores keep them.

    Args:
        query_embedding: Shape (d,).
        nodes: n nodes, of which messages give the ids.
        embeddings: Shape (n, d).

    Raises:
        InvalidInputError: If a vector is all zero or not finite, or dimensions differ.
    """
    if embeddings.shape[1:] != query_embedding.shape:
        raise InvalidInputError(
            f"the nodes' vectors must have {query_embedding.size} columns like the query, got "
            f"{embeddings.shape[-1]}; were both made by one model?"
        )
    point = _unit(query_embedding[np.newaxis], nodes=None)[0]
    products = _float32_cosines(point, embeddings)
    if products is None:
        products = _unit(embeddings, nodes) @ point
    similarities: npt.NDArray[np.float64] = np.clip(products, -1.0, 1.0)
    return similarities


def checked_query(embedding: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    """Return a query's vector, shape (d,).

    Raises:
        InvalidInputError: If it is all zero or not finite.
    """
    if not (np.isfinite(embedding).all() and embedding.any()):
        _unit(embedding[np.newaxis], nodes=None)  # says what is wrong
    return embedding


def _float32_cosines(
    point: npt.NDArray[np.float64], rows: npt.NDArray[np.floating]
) -> npt.NDArray[np.float64] | None:
    """Return products of unit vectors without a copy in float64, or None where that is unsafe."""
    if rows.dtype != np.float32:
        return None
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        squares = np.einsum("nd,nd->n", rows, rows)
        if not ((squares > _SAFE_FLOAT32) & (squares < 1 / _SAFE_FLOAT32)).all():
            return None
        products = rows @ point.astype(np.float32) / np.sqrt(squares)
    found: npt.NDArray[np.float64] = products.astype(np.float64)
    return found


def _unit(
    vectors: npt.NDArray[np.floating], nodes: Sequence[NodeWithScore] | None
) -> npt.NDArray[np.float64]:
    """Return rows of length 1, shape (n, d); `nodes` are whose they are, None for the query's."""
    rows = vectors.astype(np.float64)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        squares = np.einsum("nd,nd->n", rows, rows)
    if not ((squares > _SAFE) & (squares < 1 / _SAFE)).all():  # NaN is neither
        largest = np.abs(rows).max(axis=1)
        is_fit = np.isfinite(largest) & (largest > 0)
        if not is_fit.all():
            worst = int(np.flatnonzero(~is_fit)[0])
            whose = "the query" if nodes is None else f"node {nodes[worst].node.node_id!r}"
            wrong = "must not be all zero" if largest[worst] == 0 else "must be finite"
            raise InvalidInputError(
                f"embeddings {wrong}, that of {whose} is not fit; was an empty text embedded?"
            )
        rows /= largest[:, np.newaxis]
        squares = np.einsum("nd,nd->n", rows, rows)
    rows /= np.sqrt(squares)[:, np.newaxis]
    return rows
