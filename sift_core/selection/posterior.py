"""The Gaussian process behind every selector here, conditioned on the choices so far.

Paper symbols: prompt x* → `query`, data space D → `candidates`, λ' → `noise_variance`,
K → n, σ²_n(x*) → `variances[n]`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sift_core.errors import InvalidInputError, NumericalError
from sift_core.selection.kernels import Kernel, LinearKernel
from sift_core.types import FloatArray, IntArray, Selection, StopReason, as_finite_array

FIRST_CAPACITY = 16  # rows; doubled when full, so the number is of no consequence

# Kernel values closer than this, relative to the largest possible, may belong to copies of
# one vector. Guess: above the rounding of a sum of some thousand products, and so small
# that few other vectors need a second look.
COPY_TOLERANCE = 1e-12


@dataclass(kw_only=True, eq=False)
class Posterior:
    """Variance at the query and at every candidate, given noisy looks at some of them.

    Row j of the partial Cholesky factor is L_j = k_{j-1}(x_j, ·) / √(k_{j-1}(x_j, x_j) + λ'),
    so that k_n(x, x') = k(x, x') - Σ_j L_j(x) L_j(x'): the recursive kernel update of the
    paper's appendix "Efficient Computation", kept factored instead of as an n × n matrix.
    Made for one selection by `prior` and changed in place by `observe`.
    """

    kernel: Kernel
    noise_variance: float
    features: FloatArray  # (n, d)
    diagonal: FloatArray  # (n,), k_n(x, x)
    query_row: FloatArray  # (n,), k_n(x*, x)
    factor: FloatArray  # (capacity, n), rows up to len(positions) are filled
    variances: list[float]  # σ²_0 ... σ²_n at the query
    positions: list[int]
    prior_columns: dict[int, FloatArray]  # k(x_j, ·), kept for repeats
    originals: IntArray | None  # (n,), first equal row of each; None if no two are equal

    @classmethod
    def prior(
        cls,
        kernel: Kernel,
        noise_variance: float,
        query: FloatArray,
        candidates: FloatArray,
    ) -> Posterior:
        """Return the state before the first observation.

        Args:
            kernel: How much one text tells about another.
            noise_variance: λ > 0.
            query: Shape (d,).
            candidates: Shape (n, d), n >= 0.

        Raises:
            InvalidInputError: If shapes do not fit, a number is not finite, or a vector
                is all zero.
            NumericalError: If the kernel's values are too large for float64.
        """
        query, candidates = _checked(query, candidates)
        with np.errstate(over="ignore", invalid="ignore"):  # looked for below
            point = kernel.features(query[np.newaxis])
            features = kernel.features(candidates)
            # Copies: these are changed in place, and a kernel may answer with its own arrays.
            diagonal = np.array(kernel.diagonal(features), dtype=np.float64)
            query_row = np.array(kernel.column(features, point[0]), dtype=np.float64)
            variance = float(kernel.diagonal(point)[0])
            bound = variance * float(diagonal.max(initial=0.0))  # >= k(x*, x)², Cauchy-Schwarz
        if not (np.isfinite(bound) and np.isfinite(query_row).all()):
            raise NumericalError(
                f"the kernel's values are too large for float64 or not numbers (k(q, q) = "
                f"{variance:g}); scale the embeddings, or use a kernel that does, as "
                f"LinearKernel(normalize=True)"
            )
        originals = _first_equal_rows(features, query_row, COPY_TOLERANCE * bound**0.5)
        if originals is not None:
            diagonal, query_row = diagonal[originals], query_row[originals]
        return cls(
            kernel=kernel,
            noise_variance=noise_variance,
            features=features,
            diagonal=diagonal,
            query_row=query_row,
            factor=np.empty((0, len(features))),
            variances=[variance],
            positions=[],
            prior_columns={},
            originals=originals,
        )

    @property
    def n(self) -> int:
        """Number of candidates."""
        return len(self.features)

    def gains(self) -> FloatArray:
        """Return by how much observing each candidate would lower σ² at the query, (n,).

        Paper, section 4: k(x*, x)² / (k(x, x) + λ'), the objective of SIFT.
        """
        return self.query_row**2 / (self.diagonal + self.noise_variance)

    def observe(self, position: int) -> None:
        """Condition on a noisy observation of one candidate, in O(n · (d + steps))."""
        step = len(self.positions)
        if position not in self.prior_columns:
            self.prior_columns[position] = self.kernel.column(
                self.features, self.features[position]
            )
        earlier = self.factor[:step]
        column = self.prior_columns[position] - earlier[:, position] @ earlier
        if self.originals is not None:
            column = column[self.originals]
        scale = (self.diagonal[position] + self.noise_variance) ** 0.5
        row = column / scale
        weight = float(self.query_row[position] / scale)  # its square is the gain
        self.query_row -= row * weight
        self.diagonal -= row**2
        np.maximum(self.diagonal, 0.0, out=self.diagonal)  # rounding may cross zero
        if step == len(self.factor):
            more = np.empty((max(step, FIRST_CAPACITY), self.n))
            self.factor = np.concatenate([self.factor, more])
        self.factor[step] = row
        self.positions.append(position)
        self.variances.append(max(self.variances[-1] - weight**2, 0.0))

    def as_selection(self, stop_reason: StopReason) -> Selection:
        """Return what was observed as a value."""
        return Selection(
            positions=np.array(self.positions, dtype=np.intp),
            variances=np.array(self.variances),
            stop_reason=stop_reason,
        )


def posterior_variances(
    query: FloatArray,
    chosen: FloatArray,
    *,
    kernel: Kernel | None = None,
    noise_variance: float = 0.01,
) -> FloatArray:
    """Return how certain any choice makes the answer: σ² at the query, shape (k + 1,).

    The default is the paper's setting, whatever made the choice, so that choices of
    different selectors can be laid side by side. Takes O(k² · (d + k)) time.

    Args:
        query: Shape (d,).
        chosen: Embeddings in order of choice, shape (k, d); may repeat.
        kernel: `LinearKernel()` if None.
        noise_variance: λ > 0.

    Returns:
        σ² before the first and after every choice; starts at k(q, q) and never rises.

    Raises:
        InvalidInputError: If shapes do not fit, a number is not finite, a vector is all
            zero, or `noise_variance` is not > 0.
    """
    if not 0 < noise_variance < np.inf:  # also rejects NaN
        raise InvalidInputError(
            f"`noise_variance` must be a finite number > 0, got {noise_variance}"
        )
    posterior = Posterior.prior(kernel or LinearKernel(), noise_variance, query, chosen)
    for position in range(posterior.n):
        posterior.observe(position)
    return np.array(posterior.variances)


def _checked(query: FloatArray, candidates: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return `query` (d,) and `candidates` (n, d) as finite arrays that fit together."""
    query = as_finite_array("query", query, n_dimensions=1)
    if query.size == 0:
        raise InvalidInputError("`query` must have at least 1 number, got an empty vector")
    is_empty_list = isinstance(candidates, list | tuple) and not candidates
    if is_empty_list or getattr(candidates, "shape", ())[:1] == (0,):
        return query, np.empty((0, len(query)))  # an empty pool has no dimension of its own
    candidates = as_finite_array("candidates", candidates, n_dimensions=2)
    if candidates.shape[1] != len(query):
        raise InvalidInputError(
            f"`candidates` must have {len(query)} columns like the query, got "
            f"{candidates.shape[1]}; were both made by one model?"
        )
    return query, candidates


def _first_equal_rows(
    features: FloatArray, values: FloatArray, tolerance: float
) -> IntArray | None:
    """Return the lowest position of an equal row for each row, (n,); None if all differ.

    BLAS may sum the same row differently in another place of the matrix. Copies would then
    tie only nearly, and a small λ would blow up what is left between them.

    Args:
        features: Shape (n, d).
        values: Kernel values with one point, shape (n,). Only rows whose values are within
            `tolerance` of another's are compared, so that the usual cost is one sort.
        tolerance: More than rounding can make of the values of equal rows.
    """
    order = np.argsort(values, kind="stable")
    near = np.diff(values[order]) <= tolerance
    originals = np.arange(len(features))
    first_with: dict[bytes, int] = {}
    for position in np.union1d(order[:-1][near], order[1:][near]).tolist():
        row = (features[position] + 0.0).tobytes()  # makes -0.0 and 0.0 alike
        originals[position] = first_with.setdefault(row, position)
    return originals if (originals != np.arange(len(originals))).any() else None
