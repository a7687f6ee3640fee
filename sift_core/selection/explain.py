"""The information of each choice, and the variance that no choice from a pool can remove.

Paper symbols: prompt x* → `query`, data space D → `candidates`, λ' → `noise_variance`,
η²(x*) → `irreducible_variance`, I(f(x*); y(x) | y_1:n) → `information_gains`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sift_core.checks import as_finite_array, as_number, checked_positions
from sift_core.selection.kernels import Kernel, LinearKernel, unit_rows
from sift_core.selection.posterior import Posterior
from sift_core.types import FloatArray, IntArray

EPSILON = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, kw_only=True, eq=False)
class Explanation:
    """The information of each choice about the query, in nats.

    Args:
        positions: Shape (k,), rows of the pool in order of choice.
        information_gains: ½ log(σ²_{n-1} / σ²_n), shape (k,), >= 0: what the choice added
            to those before it. Their sum is the information of all.
        information_alone: ½ log(σ²_0 / (σ²_0 - gain)), shape (k,), >= 0: what it would have
            added alone.
    """

    positions: IntArray
    information_gains: FloatArray
    information_alone: FloatArray

    @property
    def information_shared(self) -> FloatArray:
        """`information_alone` less the gain, shape (k,): what earlier choices had added already.

        Negative if they made the choice add more than it would have alone (synergy).
        """
        return self.information_alone - self.information_gains


def explain(
    query: FloatArray,
    candidates: FloatArray,
    positions: Sequence[int] | IntArray,
    *,
    kernel: Kernel | None = None,
    noise_variance: float = 0.01,
) -> Explanation:
    """Return the information gain of each choice, and what it would have added alone.

    The paper splits the gain into relevance (alone) and redundancy (shared); in this library
    these two words mean a prior score and a cosine with an earlier pick.

    Works for the choices of any selector, under any kernel and λ. Takes O(k · n · (d + k)) time.

    A variance below the rounding of σ²_0 counts as that rounding, ε σ²_0 with ε = 2.2e-16,
    so that no gain is infinite: all gains together reach at most ½ log(1/ε) = 18 nats.

    Args:
        query: Shape (d,), or several, shape (m, d), whose variances are summed.
        candidates: Shape (n, d).
        positions: Rows of `candidates` in order of choice, shape (k,); may repeat.
        kernel: `LinearKernel()` if None.
        noise_variance: λ > 0.

    Raises:
        InvalidInputError: If shapes do not fit, a number is not finite, a vector is all
            zero, a position is not in [0, n), or `noise_variance` is not > 0.
        NumericalError: If the kernel's values are too large for float64.

    References:
        Hübotter et al. (2025), Efficiently Learning at Test-Time, ICLR: appendix "How SIFT
        Balances Relevance and Diversity".

    Example:
        The second choice repeats the first; the third adds more because of it.

        >>> import numpy as np
        >>> basis = np.eye(3)
        >>> found = explain([1.0, 1.0, 0.0], basis, [0, 0, 1], noise_variance=1.0)
        >>> found.information_alone.round(3).tolist()
        [0.144, 0.144, 0.144]
        >>> found.information_shared.round(3).tolist()
        [0.0, 0.085, -0.091]
    """
    as_number("noise_variance", noise_variance, above=0)
    posterior = Posterior.prior(
        LinearKernel() if kernel is None else kernel, noise_variance, query, candidates
    )
    rows = checked_positions(positions, posterior.n)
    alone = posterior.variances[0] - posterior.gains()[rows]  # σ² after this choice only
    for position in rows.tolist():
        posterior.observe(position)
    variances = np.array(posterior.variances)
    prior = variances[0]
    if prior == 0:  # nothing to learn
        nothing = np.zeros(len(rows))
        return Explanation(positions=rows, information_gains=nothing, information_alone=nothing)
    logs = np.log(np.maximum(variances / prior, EPSILON))
    return Explanation(
        positions=rows,
        information_gains=0.5 * (logs[:-1] - logs[1:]),
        information_alone=-0.5 * np.log(np.maximum(alone / prior, EPSILON)),
    )


def irreducible_variance(
    query: FloatArray, candidates: FloatArray, *, kernel: Kernel | None = None
) -> float:
    """Return σ² at the query if every candidate were seen infinitely often.

    The part of k(q, q) that no choice from the pool can remove: k(q, q) - k_qᵀ K⁺ k_q, in
    [0, k(q, q)]. 0 where the query lies in the span of the pool, k(q, q) for an empty pool.

    Directions fainter than rounding are left out. The lengths of the candidates play no part:
    they enter scaled to k(x, x) = 1, those with k(x, x) = 0 not at all. With ε = 2.2e-16:

    - Linear kernel: the squared distance of the query to the span of the candidates, from
      singular values above max(n, d) · ε times the largest. Right to about ε over the smallest
      one kept, in O(n · d · min(n, d)) time.
    - Any other kernel: from the eigenvalues of K above ε times the largest, in O(n² · (n + d))
      time. The result errs upwards by what the others would have added, of which a selection of
      k choices sees a share of at most k · n · ε / λ.

    Args:
        query: Shape (d,).
        candidates: Shape (n, d). n may be 0.
        kernel: `LinearKernel()` if None.

    Raises:
        InvalidInputError: If shapes do not fit, a number is not finite, or a vector is
            all zero.
        NumericalError: If the kernel's values are too large for float64.

    References:
        Hübotter et al. (2025), Efficiently Learning at Test-Time, ICLR: appendix "The
        Uncertainty of SIFT Provably Vanishes".

    Example:
        >>> query, candidates = np.array([3.0, 4.0, 0.0]), np.array([[1.0, 0.0, 0.0]])
        >>> round(irreducible_variance(query, candidates), 2)
        0.64
    """
    kernel = LinearKernel() if kernel is None else kernel
    query = as_finite_array("query", query, n_dimensions=1)
    prior = Posterior.prior(kernel, 1.0, query, candidates)  # λ plays no part
    variance = float(prior.variances[0])
    is_filled = prior.diagonal > 0
    features = prior.features[is_filled]
    if len(features) == 0:
        return variance
    if type(kernel) is LinearKernel:  # a subclass may compute something else
        point, rows = kernel.features(query[np.newaxis])[0], unit_rows(features)
        _, singular_values, directions = np.linalg.svd(rows, full_matrices=False)
        is_real = singular_values > max(rows.shape) * EPSILON * singular_values[0]
        outside = point - (directions[is_real] @ point) @ directions[is_real]
        left = float(outside @ outside)
    else:
        scales = prior.diagonal[is_filled] ** 0.5
        columns = [kernel.column(features, row) for row in features]
        correlations = np.array(columns) / scales / scales[:, np.newaxis]
        eigenvalues, directions = np.linalg.eigh(correlations)
        is_real = eigenvalues > EPSILON * eigenvalues[-1]
        parts = (prior.covariance[0, is_filled] / scales) @ directions[:, is_real]
        left = variance - float(np.sum(parts**2 / eigenvalues[is_real]))
    return float(np.clip(left, 0.0, variance))
