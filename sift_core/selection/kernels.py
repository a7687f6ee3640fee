"""Kernels k(x, x') over embeddings: how much knowing one text tells about another.

A kernel prepares the embeddings once (`features`) and then answers one column at a
time, so that a selection never builds the n × n matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from sift_core.checks import as_number, check_flag, one_each, short_repr
from sift_core.errors import InvalidInputError
from sift_core.types import FloatArray

# Squares of lengths within these keep all their digits: far from where float64 ends.
SMALLEST_SQUARE, LARGEST_SQUARE = 1e-280, 1e280

# Added to a cosine and taken away again, it leaves multiples of 1.4e-14. How a sum of products is
# rounded depends on the processor: a vector's cosine with itself misses 1 by some 1e-15, which a
# steep kernel makes more than a tie may differ by.
COARSE = 64.0


@runtime_checkable
class Kernel(Protocol):
    """A positive semidefinite function of two embeddings.

    Example:
        >>> isinstance(RBFKernel(), Kernel)
        True
        >>> selector = SIFTSelector(kernel=RBFKernel())
        >>> selector.select(query.embedding, pool.embeddings, 2).positions.tolist()
        [0, 1]
    """

    def features(self, embeddings: FloatArray) -> FloatArray:
        """Return what the kernel computes with, float64, one row an embedding (n, d).

        Raises:
            InvalidInputError: If a row cannot be used.
        """
        ...

    def diagonal(self, features: FloatArray) -> FloatArray:
        """Return k(x, x) for every row, shape (n,)."""
        ...

    def column(self, features: FloatArray, point: FloatArray) -> FloatArray:
        """Return k(x, point) for every row x, shape (n,); `point` is a row of features."""
        ...


@dataclass(frozen=True, kw_only=True)
class LinearKernel:
    """k(x, x') = xᵀx' on unit vectors: the paper's kernel (section 4).

    Args:
        normalize: Scale every embedding to unit length first, as the paper does. Without
            it longer vectors count as more informative.

    Example:
        >>> kernel = LinearKernel()
        >>> vectors = kernel.features(np.array([[3.0, 4.0], [1.0, 0.0]]))
        >>> kernel.column(vectors, vectors[1]).tolist()
        [0.6, 1.0]
    """

    normalize: bool = True

    def __post_init__(self) -> None:
        check_flag("normalize", self.normalize)

    def features(self, embeddings: FloatArray) -> FloatArray:
        """Return the embeddings in float64, shape (n, d), unit rows if `normalize`."""
        return unit_rows(embeddings) if self.normalize else embeddings.astype(np.float64)

    def diagonal(self, features: FloatArray) -> FloatArray:
        """Return the squared length of every row, shape (n,)."""
        squares: FloatArray = np.einsum("nd,nd->n", features, features)
        return squares

    def column(self, features: FloatArray, point: FloatArray) -> FloatArray:
        """Return the inner products with `point`, shape (n,), in O(nd)."""
        return features @ point


@dataclass(frozen=True, kw_only=True)
class RBFKernel:
    """k(x, x') = exp((cos(x, x') - 1) / length_scale²): the Gaussian kernel on the sphere.

    On unit vectors |x - x'|² = 2(1 - cos), so this is exp(-|x - x'|² / (2 length_scale²)).

    Args:
        length_scale: Distance on the sphere over which texts inform about each other,
            greater than 0. The default, √0.1, gives exp(10 (cos - 1)); decision 0002 says why.

    Raises:
        InvalidInputError: If `length_scale` is not positive, or its square out of range.

    Example:
        >>> kernel = RBFKernel(length_scale=1.0)
        >>> vectors = kernel.features(np.array([[3.0, 4.0], [1.0, 0.0]]))
        >>> kernel.column(vectors, vectors[1]).round(2).tolist()
        [0.67, 1.0]
    """

    length_scale: float = 0.1**0.5

    def __post_init__(self) -> None:
        length = as_number("length_scale", self.length_scale, above=0)
        square = length * length
        if not (0 < square < np.inf and 2 / square < np.inf):  # 2 is the most that 1 - cos can be
            raise InvalidInputError(
                f"`length_scale` must be > 0 and its square neither 0 nor infinite in "
                f"float64, got {short_repr(self.length_scale)}"
            )

    @property
    def decay(self) -> float:
        """1 / length_scale²."""
        return 1.0 / float(self.length_scale) ** 2

    def features(self, embeddings: FloatArray) -> FloatArray:
        """Return the embeddings scaled to unit length, float64, shape (n, d)."""
        return unit_rows(embeddings)

    def diagonal(self, features: FloatArray) -> FloatArray:
        """Return ones, shape (n,)."""
        return np.ones(len(features))

    def column(self, features: FloatArray, point: FloatArray) -> FloatArray:
        """Return the kernel values with `point`, shape (n,), in O(nd)."""
        return self.of_cosines(features @ point)

    def of_cosines(self, cosines: FloatArray) -> FloatArray:
        """Return the kernel values for inner products of unit vectors, of the same shape."""
        values: FloatArray = np.minimum(cosines, 1.0, dtype=np.float64)  # rounding may exceed 1
        values += COARSE
        values -= COARSE + 1.0
        values *= self.decay
        return np.exp(values, out=values)


def unit_rows(embeddings: FloatArray) -> FloatArray:
    """Return the rows scaled to unit length, float64, shape (n, d).

    Raises:
        InvalidInputError: If a row has length zero: it has no direction. If a number of
            higher precision is too large for float64.
    """
    with np.errstate(over="ignore"):  # looked for below
        rows = embeddings.astype(np.float64)
    with np.errstate(over="ignore", under="ignore"):
        squares = np.einsum("nd,nd->n", rows, rows)
    if ((squares > SMALLEST_SQUARE) & (squares < LARGEST_SQUARE)).all():
        rows /= np.sqrt(squares)[:, np.newaxis]
        return rows
    # Scale by the largest entry first: squares of very small or large ones leave the range.
    largest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
    if not (largest > 0).all():
        first = int(np.flatnonzero(largest.ravel() == 0)[0])
        raise InvalidInputError(
            f"embeddings must not be all zero, got such a vector in row {first}; "
            f"was an empty text embedded?"
        )
    if not (largest < np.inf).all():
        raise InvalidInputError(
            f"embeddings must fit into float64, got {embeddings.dtype} beyond "
            f"{np.finfo(np.float64).max:g}"
        )
    rows /= largest
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


def in_the_order_of(relevance: FloatArray, cosines: FloatArray) -> FloatArray:
    """Return the cosines dealt out anew, the i-th largest to the i-th most relevant, (n,).

    Only the order of `relevance` counts, so that its scale does not matter. Candidates that are
    equally relevant get the mean of theirs.

    Raises:
        InvalidInputError: If there are not n numbers, or one is not finite.
    """
    relevance = one_each("relevance", relevance, len(cosines))
    _, group, sizes = np.unique(relevance, return_inverse=True, return_counts=True)
    dealt = np.empty(len(cosines))
    dealt[np.argsort(relevance, kind="stable")] = np.sort(cosines)
    means: FloatArray = np.bincount(group, weights=dealt, minlength=len(sizes)) / sizes
    return means[group]
