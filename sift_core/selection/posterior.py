"""The Gaussian process behind every selector here, conditioned on the choices so far.

Paper symbols: prompt x* → a target, data space D → `candidates`, λ' → `noise_variance`,
K → n, σ²_n(x*) → `variances[n]`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sift_core.checks import as_number, checked_arrays, checked_rows, checked_weights, short_repr
from sift_core.errors import InvalidInputError, NumericalError
from sift_core.selection.kernels import Kernel, LinearKernel, RBFKernel
from sift_core.types import FloatArray, IntArray, Selection, StopReason

FIRST_CAPACITY = 16  # rows; doubled when full, so the number is of no consequence

# Kernel values closer than this, relative to the largest possible, may belong to copies of
# one vector. Guess: above the rounding of a sum of some thousand products, and so small
# that few other vectors need a second look.
COPY_TOLERANCE = 1e-12


@dataclass(kw_only=True, eq=False)
class Posterior:
    """Variances of targets and candidates, given noisy looks at some of the candidates.

    Row j of the partial Cholesky factor is L_j = k_{j-1}(x_j, ·) / √(k_{j-1}(x_j, x_j) + λ'),
    so that k_n(x, x') = k(x, x') - Σ_j L_j(x) L_j(x'): the recursive kernel update of the
    paper's appendix "Efficient Computation", kept factored instead of as an n × n matrix.
    Made for one selection and changed in place by `observe`.
    """

    kernel: Kernel
    noise_variance: float
    features: FloatArray  # (n, d)
    diagonal: FloatArray  # (n,), k_n(x, x)
    covariance: FloatArray  # (t, n), k_n(target, x)
    weights: FloatArray  # (t,), what the variance of each target counts
    variances: list[float]  # Σ weight · σ² over the targets, before and after each step
    positions: list[int]
    factor: FloatArray  # (capacity, n), rows up to `n_rows` are filled
    n_rows: int
    prior_columns: dict[int, FloatArray]  # k(x_j, ·), kept for repeats
    originals: IntArray | None  # (n,), first equal row of each; None if no two are equal

    @classmethod
    def prior(
        cls,
        kernel: Kernel,
        noise_variance: float,
        query: FloatArray,
        candidates: FloatArray,
        *,
        weights: FloatArray | None = None,
        conditioned_on: FloatArray | None = None,
    ) -> Posterior:
        """Return the state before the first choice.

        Args:
            kernel: How much one text tells about another.
            noise_variance: λ > 0.
            query: One target, shape (d,), or several, shape (t, d).
            candidates: Shape (n, d), n >= 0.
            weights: What each target counts, shape (t,), >= 0; ones if None.
            conditioned_on: Embeddings that were seen before, shape (m, d).

        Raises:
            InvalidInputError: If shapes do not fit, a number is not finite, a vector is all
                zero, or `kernel` is no kernel.
            NumericalError: If the kernel's values are too large for float64.
        """
        if isinstance(kernel, type) or not isinstance(kernel, Kernel):
            raise InvalidInputError(
                f"`kernel` must be a kernel, for instance RBFKernel(), got {short_repr(kernel)}"
            )
        targets, candidates = checked_arrays(query, candidates)
        weights = checked_weights(weights, len(targets))
        n = len(candidates)
        if conditioned_on is not None:
            seen = checked_rows("conditioned_on", conditioned_on, targets.shape[1])
            candidates = np.concatenate([candidates, seen])
        posterior = cls._prior(kernel, noise_variance, targets, candidates, weights)
        if conditioned_on is not None:
            posterior._condition_on_rows_from(n)
        return posterior

    @classmethod
    def _prior(
        cls,
        kernel: Kernel,
        noise_variance: float,
        targets: FloatArray,
        candidates: FloatArray,
        weights: FloatArray,
    ) -> Posterior:
        with np.errstate(over="ignore", invalid="ignore"):  # looked for below
            points = kernel.features(targets)
            features = kernel.features(candidates)
            # Copies: these are changed in place, and a kernel may answer with its own arrays.
            diagonal = np.array(kernel.diagonal(features), dtype=np.float64)
            covariance = np.array(kernel_matrix(kernel, features, points), dtype=np.float64)
            prior = np.asarray(kernel.diagonal(points), dtype=np.float64)
            variance = float(weights @ prior)
            bound = prior.max() * diagonal.max(initial=0.0)  # >= k(x*, x)², Cauchy-Schwarz
        if not (np.isfinite(bound) and np.isfinite(variance) and np.isfinite(covariance).all()):
            raise NumericalError(
                f"the kernel's values are too large for float64 or not numbers (k(q, q) = "
                f"{prior.max():g}); scale the embeddings, or use a kernel that does, as "
                f"LinearKernel(normalize=True)"
            )
        originals = _first_equal_rows(features, covariance[0], COPY_TOLERANCE * bound**0.5)
        if originals is not None:
            diagonal, covariance = diagonal[originals], covariance[:, originals]
        return cls(
            kernel=kernel,
            noise_variance=noise_variance,
            features=features,
            diagonal=diagonal,
            covariance=covariance,
            weights=weights,
            variances=[variance],
            positions=[],
            factor=np.empty((0, len(features))),
            n_rows=0,
            prior_columns={},
            originals=originals,
        )

    @property
    def n(self) -> int:
        """Number of candidates."""
        return len(self.features)

    def gains(self, weights: FloatArray | None = None) -> FloatArray:
        """Return by how much observing each candidate would lower the variance, (n,).

        Paper, section 4: k(x*, x)² / (k(x, x) + λ'), the objective of SIFT, summed over the
        targets with their weights, or with others (t,).

        Raises:
            NumericalError: If λ is so small that they left the range of float64.
        """
        with np.errstate(over="ignore", invalid="ignore"):  # looked for below
            weights = self.weights if weights is None else weights
            explained: FloatArray = weights @ self.covariance**2
            gains: FloatArray = explained / (self.diagonal + self.noise_variance)
        if not np.isfinite(gains).all():
            raise too_little_noise(self.noise_variance)
        return gains

    def observe(self, position: int) -> None:
        """Condition on a noisy observation of one candidate, in O(n · (d + steps + t))."""
        earlier = self.factor[: self.n_rows]
        scale = (self.diagonal[position] + self.noise_variance) ** 0.5
        with np.errstate(over="ignore", invalid="ignore"):  # this gain or the next shows it
            column = self._prior_column(position) - earlier[:, position] @ earlier
            if self.originals is not None:
                column = column[self.originals]
            row = column / scale
            loads = self.covariance[:, position] / scale  # (t,), weights · squares are the gain
            gain = float(self.weights @ loads**2)
            self.covariance -= loads[:, np.newaxis] * row
            self.diagonal -= row**2
        if not np.isfinite(gain):
            raise too_little_noise(self.noise_variance)
        np.maximum(self.diagonal, 0.0, out=self.diagonal)  # rounding may cross zero
        self._append(row)
        self.positions.append(position)
        self.variances.append(max(self.variances[-1] - gain, 0.0))

    def _prior_column(self, position: int) -> FloatArray:
        """Return k(x, ·) before any observation, shape (n,)."""
        if position not in self.prior_columns:
            self.prior_columns[position] = self.kernel.column(
                self.features, self.features[position]
            )
        return self.prior_columns[position]

    def _append(self, row: FloatArray) -> None:
        if self.n_rows == len(self.factor):
            more = np.empty((max(self.n_rows, FIRST_CAPACITY), self.n))
            self.factor = np.concatenate([self.factor, more])
        self.factor[self.n_rows] = row
        self.n_rows += 1

    def _condition_on_rows_from(self, n: int) -> None:
        """Observe the rows from `n` on, then forget that they ever were candidates."""
        for position in range(n, self.n):
            self.observe(position)
        self.features, self.diagonal = self.features[:n], self.diagonal[:n]
        self.covariance, self.factor = self.covariance[:, :n].copy(), self.factor[:, :n].copy()
        self.originals = None if self.originals is None else self.originals[:n]
        self.variances, self.positions, self.prior_columns = self.variances[-1:], [], {}

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
        query: Shape (d,), or several targets, shape (t, d), whose variances are summed.
        chosen: Embeddings in order of choice, shape (k, d); may repeat.
        kernel: `LinearKernel()` if None.
        noise_variance: λ > 0.

    Returns:
        σ² before the first and after every choice; starts at k(q, q) and never rises.

    Raises:
        InvalidInputError: If shapes do not fit, a number is not finite, a vector is all
            zero, or `noise_variance` is not > 0.

    Example:
        >>> query, chosen = np.array([3.0, 4.0]), np.eye(2)
        >>> posterior_variances(query, chosen).round(2).tolist()
        [1.0, 0.64, 0.01]
    """
    as_number("noise_variance", noise_variance, above=0)
    posterior = Posterior.prior(
        LinearKernel() if kernel is None else kernel, noise_variance, query, chosen
    )
    for position in range(posterior.n):
        posterior.observe(position)
    return np.array(posterior.variances)


def too_little_noise(noise_variance: float) -> NumericalError:
    """Return the error to raise where λ lets rounding grow beyond float64."""
    return NumericalError(
        f"`noise_variance` {noise_variance:g} is too small beside the kernel's values; raise it, "
        f"or scale the embeddings"
    )


def kernel_matrix(kernel: Kernel, features: FloatArray, points: FloatArray) -> FloatArray:
    """Return k(point, x) for every point and every row x, shape (t, n).

    One matrix product for the kernels of this package, a column a point for others, also
    for subclasses, whose columns may be others.
    """
    if len(points) > 1 and type(kernel) is LinearKernel:
        return points @ features.T
    if len(points) > 1 and type(kernel) is RBFKernel:
        return kernel.of_cosines(points @ features.T)
    return np.stack([kernel.column(features, point) for point in points])


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
    if not near.any():
        return None
    originals = np.arange(len(features))
    first_with: dict[bytes, int] = {}
    for position in np.union1d(order[:-1][near], order[1:][near]).tolist():
        row = (features[position] + 0.0).tobytes()  # makes -0.0 and 0.0 alike
        originals[position] = first_with.setdefault(row, position)
    return originals if (originals != np.arange(len(originals))).any() else None
