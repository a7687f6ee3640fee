"""Cosines of a query with candidates, as sources and plugins tell them of what they found."""

from __future__ import annotations

import numpy as np

from sift_core.checks import as_finite_array, checked_rows, is_matrix
from sift_core.selection.backend import loaded
from sift_core.types import FloatArray

NUMBERS_AT_ONCE = 131_072  # turned into float64: 1 MiB, which stays in the processor's cache


def cosine_similarities(query: FloatArray, embeddings: FloatArray) -> FloatArray:
    """Return the cosine of `query` (d,) and every row of `embeddings` (n, d), shape (n,).

    Of several queries (m, d), m >= 1, it is the cosine with the one that is nearest to the row.
    float32, in [-1, 1]; 0 where a vector is all zero. Equal rows have equal cosines, which
    a matrix product by BLAS does not promise: here each row is summed by itself, in float64.
    Where compiled loops are loaded no copy in float64 is made.

    Raises:
        InvalidInputError: If shapes do not fit, or a number is not finite.

    Example:
        >>> cosine_similarities(np.array([1.0, 0.0]), np.array([[1.0, 0.0], [0.0, 2.0]])).tolist()
        [1.0, 0.0]
    """
    if (getattr(query, "ndim", 0) == 2 or is_matrix(query)) and len(query):
        each = [cosine_similarities(one, embeddings) for one in query]
        nearest: FloatArray = np.max(each, axis=0)
        return nearest
    query = as_finite_array("query", query, n_dimensions=1)
    compiled, rows = loaded(), None
    is_contiguous = isinstance(embeddings, np.ndarray) and embeddings.flags.c_contiguous
    if compiled is not None and is_contiguous:
        rows = compiled.read(query[np.newaxis], embeddings, 0)
    if rows is None:
        cosines = _in_numpy(query, checked_rows("embeddings", embeddings, len(query)))
    else:
        cosines = rows.nearness[0]
    clipped: FloatArray = np.minimum(np.maximum(cosines, -1.0), 1.0)
    return clipped.astype(np.float32)


def _in_numpy(query: FloatArray, embeddings: FloatArray) -> FloatArray:
    """Return the cosines in float64 of finite vectors, (d,) and (n, d)."""
    direction = query.astype(np.float64)  # squares of float32 leave its range
    largest = float(np.abs(direction).max(initial=0.0))
    if largest > 0:
        direction /= largest  # and those of float64 could leave that
        direction /= float(direction @ direction) ** 0.5
    lengths, products = np.empty((2, len(embeddings)))
    step = max(1, NUMBERS_AT_ONCE // max(1, embeddings.shape[1]))
    for start in range(0, len(embeddings), step):
        those = slice(start, start + step)
        rows = embeddings[those].astype(np.float64)
        lengths[those] = np.sqrt(_row_products(rows, rows))
        products[those] = _row_products(rows, direction)
    return np.divide(products, lengths, out=np.zeros(len(lengths)), where=lengths > 0)


def _row_products(rows: FloatArray, others: FloatArray) -> FloatArray:
    """Return the inner product of each row (n, d) with the same of `others`, (n, d) or (d,)."""
    if hasattr(np, "vecdot"):  # NumPy 2: twice as fast
        products: FloatArray = np.vecdot(rows, others)
        return products
    subscripts = "nd,nd->n" if others.ndim == 2 else "nd,d->n"
    return np.asarray(np.einsum(subscripts, rows, others))
