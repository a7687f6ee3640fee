"""Selectors that the experiment compares and nothing else uses: HullFT, US and NN-F.

HullFT rebuilds the query as a weighted mean of candidates and makes counts of the weights. Its
symbols in the paper (Khamis and Maalouf, arXiv 2605.30337): query embedding q → unit row of
`query`, candidates P → unit rows of `candidates`, w → `weights`, counts c → repeats in
`positions`, N → `n_select`.

Uncertainty sampling (US) and the failure mode of nearest neighbors (NN-F) are baselines of the
paper on SIFT, section "Results".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sift_core import Kernel, LinearKernel, NearestNeighborSelector, posterior_variances
from sift_core.checks import as_finite_array, checked_arrays
from sift_core.selection.greedy import first_largest
from sift_core.selection.kernels import unit_rows
from sift_core.selection.posterior import Posterior
from sift_core.types import FloatArray, IntArray, Selection, StopReason

# Inner products of unit vectors closer than this count as tied: copies of a vector tie
# whatever order BLAS sums in, and no other direction is worth telling apart.
TIE_TOLERANCE = 1e-12

# A swap must lower the squared distance by more than this, so that none undoes an earlier one
# by rounding. Guess: some thousand roundings of numbers up to 4.
SWAP_TOLERANCE = 1e-12

# A smaller weight is one taken away, with what rounding left of it.
WEIGHT_ROUNDING = 1e-15

WEIGHT_DECIMALS = 6  # to order by weight: equal weights tie whatever their rounding


@dataclass(frozen=True, kw_only=True)
class HullReconstructionSelector:
    """Chooses the candidates whose mean lies nearest to the query, each as often as it weighs.

    HullFT: Frank–Wolfe with exact line search minimises |q - Σ w_i x_i|² over convex
    weights, beginning at the nearest candidate and ending at `n_select` candidates with
    weight. The weights then become counts that sum to `n_select`: rounded down, filled up
    one by one, and swapped, each time so that the mean of the chosen lies nearest to the
    query. Made for fine-tuning, one step a choice; in a prompt repeats are of no use.

    Follows the abstract and the authors' code (github.com/alaa-khamis/HullFT, 1fa578f) but for
    three details. Away steps (Guélat and Marcotte, 1986) remove weight from candidates that
    turned out useless, which plain Frank–Wolfe keeps for ever. The gap, not the distance, says
    when to end: outside the hull, the usual case on the sphere, the distance never gets small.
    Swaps go on until none helps, the best one first, instead of two rounds. On four sets of
    questions and passages 94 to 100 % of the choices are those of the plain method.

    Its variances are those of the paper's setting.

    Args:
        tolerance: Largest duality gap, in squared distance, that ends the iteration; > 0.
        max_iterations: Steps after which it ends anyway, >= 1; the gap is then larger.

    References:
        Khamis and Maalouf (2026), Efficient Test-Time Finetuning of LLMs via Convex
        Reconstruction and Gradient Caching, arXiv 2605.30337.
        Lacoste-Julien and Jaggi (2015), On the Global Linear Convergence of Frank-Wolfe
        Optimization Variants, NeurIPS: algorithm 1 (away steps).
    """

    tolerance: float = 1e-4
    max_iterations: int = 1000

    def select(
        self,
        query: FloatArray,
        candidates: FloatArray,
        n_select: int,
        *,
        relevance: FloatArray | None = None,
    ) -> Selection:
        """Return the candidates by falling weight, each repeated its count in one run.

        Candidates with weights equal to 6 decimals are ordered by position. Takes
        O(iterations · n · d + n_select² · (d + n_select)) time.
        """
        target, units = _unit_vectors(query, candidates)
        positions = np.empty(0, dtype=np.intp)
        if len(units) > 0 and n_select > 0:
            weights = self.weights(target, units, n_select)
            support = np.flatnonzero(weights)
            order = np.argsort(-weights[support].round(WEIGHT_DECIMALS), kind="stable")
            support = support[order]
            counts = _integer_counts(weights[support], units[support], target, n_select)
            positions = np.repeat(support, counts)
        return _selection(query, candidates, positions, n_select)

    def weights(self, target: FloatArray, units: FloatArray, max_support: int) -> FloatArray:
        """Return the convex weights, shape (n,), before they become counts.

        Frank–Wolfe with away steps. Takes O(n · d) time an iteration; about 100 iterations for
        n = 200.
        """
        weights = np.zeros(len(units))
        weights[_first_nearly_largest(units @ target)] = 1.0
        n_iterations = 0
        while True:
            support = np.flatnonzero(weights)
            reached = weights[support] @ units[support]  # (d,)
            residual = target - reached  # -½ of the gradient
            scores = units @ residual  # (n,)
            score = float(reached @ residual)  # their weighted mean
            toward = _first_nearly_largest(scores)
            away = int(support[np.argmin(scores[support])])
            gap = 2.0 * (float(scores[toward]) - score)
            goes_away = len(support) > 1 and score - scores[away] > scores[toward] - score
            is_full = weights[toward] == 0 and len(support) >= max_support
            if gap <= self.tolerance or is_full or n_iterations == self.max_iterations:
                break
            # The step moves all weights towards, or away from, all weight on one vertex. One
            # that goes too far away takes the vertex out: what is left, scaled to sum 1, is
            # where its weight crossed zero.
            vertex, sign = (away, -1.0) if goes_away else (toward, 1.0)
            direction = sign * (units[vertex] - reached)
            length = float(direction @ residual) / float(direction @ direction)
            weights *= 1.0 - sign * length
            weights[vertex] += sign * length
            weights[weights < WEIGHT_ROUNDING] = 0.0
            weights /= weights.sum()
            n_iterations += 1
        return weights


@dataclass(frozen=True, kw_only=True)
class RepeatedNeighborSelector:
    """Chooses the nearest candidate again and again: the paper's NN-F.

    Nearest neighbors do this in a collection that holds one text many times over. The variances
    are those of the paper's setting.
    """

    def select(
        self, query: FloatArray, candidates: FloatArray, n_select: int, **options: Any
    ) -> Selection:
        """Return the first choice of `NearestNeighborSelector`, `n_select` times."""
        nearest = NearestNeighborSelector().select(query, candidates, 1, **options)
        return _selection(query, candidates, np.repeat(nearest.positions, n_select), n_select)


@dataclass(frozen=True, kw_only=True)
class UncertaintySamplingSelector:
    """Chooses the candidate whose own variance is largest: x_{n+1} = argmax σ²_n(x).

    It covers the pool evenly, wherever the query lies. So it needs a pool that a search has
    narrowed down (the paper: the 200 nearest neighbors). The query plays a part only in the
    variances reported.

    References:
        Hübotter et al. (2025), Efficiently Learning at Test-Time, ICLR: section "Results".
    """

    kernel: Kernel = field(default_factory=LinearKernel)
    noise_variance: float = 0.01
    allow_repeats: bool = False

    def select(
        self,
        query: FloatArray,
        candidates: FloatArray,
        n_select: int,
        *,
        relevance: FloatArray | None = None,
    ) -> Selection:
        """Return `n_select` of `candidates` (n, d), with the variances at `query`, (d,) or (t, d).

        Takes O(n_select · n · (d + n_select)) time. Ties go to the lowest position. Unit vectors
        all start alike, so position 0 comes first: the nearest one in a pool that a search has
        sorted. `relevance` is disregarded.
        """
        posterior = Posterior.prior(self.kernel, self.noise_variance, query, candidates)
        is_free = np.ones(posterior.n, dtype=bool)
        while len(posterior.positions) < n_select:
            if not is_free.any():
                return posterior.as_selection(StopReason.POOL_EXHAUSTED)
            position = first_largest(np.where(is_free, posterior.diagonal, -1.0))
            is_free[position] = self.allow_repeats
            posterior.observe(position)
        return posterior.as_selection(StopReason.N_SELECT)


def _integer_counts(
    weights: FloatArray, units: FloatArray, target: FloatArray, n_select: int
) -> IntArray:
    """Return counts, shape (m,), with sum N = `n_select` >= 1 and Σ c_i x_i near N q.

    No exchange of one choice for another brings it nearer. Of the m candidates `units` (m, d)
    each has one of the `weights` (m,), sum 1; `target` is q, shape (d,).
    """
    gram = units @ units.T  # (m, m)
    between = 2.0 - 2.0 * gram  # |x_i - x_j|²
    aim = n_select * (units @ target)
    counts = np.floor(n_select * weights).astype(np.intp)
    while counts.sum() < n_select:
        # By how much |N q - Σ c_i x_i|² rises with one more of each, less |x_i|² = 1.
        counts[np.argmin(2.0 * (gram @ counts - aim))] += 1
    while True:
        slope = 2.0 * (gram @ counts - aim)
        rise = slope - slope[:, np.newaxis] + between  # one less of row, one more of column
        rise[counts == 0] = np.inf
        fewer, more = divmod(int(np.argmin(rise)), len(counts))
        if rise[fewer, more] >= -SWAP_TOLERANCE * n_select**2:
            return counts
        counts[fewer] -= 1
        counts[more] += 1


def _unit_vectors(query: FloatArray, candidates: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return `query` (d,) and `candidates` (n, d) on the sphere, after the usual checks."""
    query = as_finite_array("query", query, n_dimensions=1)
    targets, candidates = checked_arrays(query, candidates)
    return unit_rows(targets)[0], unit_rows(candidates)


def _first_nearly_largest(values: FloatArray) -> int:
    """Return the lowest position whose value is the largest, up to `TIE_TOLERANCE`."""
    return int(np.argmax(values >= values.max() - TIE_TOLERANCE))


def _selection(
    query: FloatArray, candidates: FloatArray, positions: IntArray, n_select: int
) -> Selection:
    """Return the choice of `positions` (k,) with its variances in the paper's setting."""
    is_complete = len(positions) == n_select
    return Selection(
        positions=positions,
        variances=posterior_variances(query, np.asarray(candidates)[positions]),
        stop_reason=StopReason.N_SELECT if is_complete else StopReason.POOL_EXHAUSTED,
    )
