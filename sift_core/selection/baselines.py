"""Selectors to compare with, behind the same protocol.

The paper's baselines (section "Results", "Base Models and Baselines"): nearest neighbors
(NN), their failure mode (NN-F) and uncertainty sampling (US); and MMR, which vector stores
and frameworks offer.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from sift_core.checks import as_count, as_finite_array, as_number, check_flag, checked_relevance
from sift_core.selection.greedy import check_stops, first_largest, is_certain, why_not
from sift_core.selection.kernels import Kernel, LinearKernel, in_the_order_of
from sift_core.selection.posterior import (
    MOST_REPEATS,
    Posterior,
    check_noise_variance,
    posterior_variances,
)
from sift_core.types import FloatArray, IntArray, Selection, StopReason


@dataclass(frozen=True, kw_only=True)
class NearestNeighborSelector:
    """Chooses the candidates with the largest cosine, as plain retrieval does.

    Its variances are those of the paper's setting; `posterior_variances` gives any other.
    """

    def select(
        self,
        query: FloatArray,
        candidates: FloatArray,
        n_select: int,
        *,
        relevance: FloatArray | None = None,
    ) -> Selection:
        """Return the `n_select` nearest of `candidates` (n, d) to `query` (d,), nearest first.

        The most relevant first where `relevance` (n,) is given. Ties go to the lowest
        position; none is chosen twice.

        Raises:
            InvalidInputError: As `SIFTSelector.select`.
        """
        n_select = as_count("n_select", n_select, minimum=0)
        nearest = _nearest_first(query, candidates, relevance)[:n_select]
        return _selection(query, candidates, nearest, n_select)


@dataclass(frozen=True, kw_only=True)
class RepeatedNeighborSelector:
    """Chooses the nearest candidate again and again: the paper's NN-F.

    What nearest neighbors come to in a collection that holds one text many times over. Its
    variances are those of the paper's setting.
    """

    def select(
        self,
        query: FloatArray,
        candidates: FloatArray,
        n_select: int,
        *,
        relevance: FloatArray | None = None,
    ) -> Selection:
        """Return the nearest of `candidates` (n, d) to `query` (d,), `n_select` times.

        The most relevant where `relevance` (n,) is given. Ties go to the lowest position.
        Only an empty pool gives fewer.

        Raises:
            InvalidInputError: As `SIFTSelector.select`.
        """
        n_select = as_count("n_select", n_select, minimum=0, maximum=MOST_REPEATS)
        nearest = _nearest_first(query, candidates, relevance)[:1]
        return _selection(query, candidates, np.repeat(nearest, n_select), n_select)


@dataclass(frozen=True, kw_only=True)
class MMRSelector:
    """Chooses by maximal marginal relevance: near to the query, unlike what was chosen.

    argmax w · cos(q, x) - (1 - w) · max cos(x, x_j) over the earlier choices x_j. Its variances
    are those of the paper's setting.

    Args:
        relevance_weight: w in [0, 1]. 1 is nearest neighbours; larger is closer to the query.

    Raises:
        InvalidInputError: If the weight is out of its range.

    References:
        Carbonell and Goldstein (1998), The Use of MMR, Diversity-Based Reranking for
        Reordering Documents and Producing Summaries, SIGIR.
    """

    relevance_weight: float = 0.7

    def __post_init__(self) -> None:
        as_number("relevance_weight", self.relevance_weight, minimum=0, maximum=1)

    def select(
        self,
        query: FloatArray,
        candidates: FloatArray,
        n_select: int,
        *,
        relevance: FloatArray | None = None,
    ) -> Selection:
        """Return `n_select` of `candidates` (n, d) for `query` (d,), none twice.

        Takes O(n_select · n · d) time. The first is the most relevant one, whatever the weight.
        Ties go to the lowest position. With `relevance` (n,) the i-th most relevant takes the
        i-th largest cosine.

        Raises:
            InvalidInputError: As `SIFTSelector.select`.
        """
        n_select = as_count("n_select", n_select, minimum=0)
        query = as_finite_array("query", query, n_dimensions=1)
        prior = Posterior.prior(LinearKernel(), 1.0, query, candidates)
        rows, nearness = prior.features, prior.covariance[0]
        if relevance is not None:
            nearness = in_the_order_of(relevance, nearness)
        redundancy = np.full(len(rows), -np.inf)  # largest cosine with one of the chosen
        is_free = np.ones(len(rows), dtype=bool)
        positions: list[int] = []
        weight = self.relevance_weight
        while len(positions) < min(n_select, len(rows)):
            marginal = nearness
            if positions:
                marginal = weight * nearness - (1.0 - weight) * redundancy
            position = first_largest(np.where(is_free, marginal, -np.inf))
            positions.append(position)
            is_free[position] = False
            np.maximum(redundancy, rows @ rows[position], out=redundancy)
        return _selection(query, candidates, np.array(positions, dtype=np.intp), n_select)


@dataclass(frozen=True, kw_only=True)
class UncertaintySamplingSelector:
    """Chooses the candidate whose own variance is largest: x_{n+1} = argmax σ²_n(x).

    Covers the pool evenly, wherever the query lies; so it needs a pool that a search has
    narrowed down (the paper: the 200 nearest neighbors). The query plays a part only in
    the variances reported. Unlike with the other baselines, `kernel` and `noise_variance`
    decide the choice.

    Args:
        kernel: How much one text tells about another; the paper's if left out.
        noise_variance: λ > 0 in squared kernel units; likewise.
        allow_repeats: Whether a candidate may be chosen again: as soon as no other has a
            larger variance left.
        alpha: As in `SIFTSelector`, of the variance at the query.
        max_variance: Likewise.
        min_gain: Likewise.

    Raises:
        InvalidInputError: If a number is out of its range.

    References:
        Hübotter et al. (2025), Efficiently Learning at Test-Time, ICLR: section "Results".
    """

    kernel: Kernel = field(default_factory=LinearKernel)
    noise_variance: float = 0.01
    allow_repeats: bool = False
    alpha: float | None = None
    max_variance: float | None = None
    min_gain: float | None = None

    def __post_init__(self) -> None:
        check_noise_variance(self.noise_variance)
        check_stops(self)
        check_flag("allow_repeats", self.allow_repeats)

    def select(
        self,
        query: FloatArray,
        candidates: FloatArray,
        n_select: int,
        *,
        relevance: FloatArray | None = None,
    ) -> Selection:
        """Return `n_select` of `candidates` (n, d), with the variances at `query`, (d,) or (t, d).

        Takes O(n_select · n · (d + n_select)) time. Ties go to the lowest position, so
        that on unit vectors, which all start alike, position 0 comes first: the nearest
        one in a pool that a search has sorted. `relevance` is disregarded.

        Raises:
            InvalidInputError: As `SIFTSelector.select`.
            NumericalError: If the kernel's values are too large for float64.
        """
        n_select = as_count("n_select", n_select, minimum=0)
        posterior = Posterior.prior(self.kernel, self.noise_variance, query, candidates)
        chosen = np.zeros(posterior.n, dtype=bool)
        while len(posterior.positions) < n_select:
            if is_certain(self, posterior.variances[-1]):
                return posterior.as_selection(StopReason.MAX_VARIANCE)
            if chosen.all() and (posterior.n == 0 or not self.allow_repeats):
                return posterior.as_selection(StopReason.POOL_EXHAUSTED)
            variances = posterior.diagonal  # >= 0
            if not self.allow_repeats:
                variances = np.where(chosen, -1.0, variances)
            position = first_largest(variances)
            if self.alpha is not None or self.min_gain is not None:
                gain, n = float(posterior.gains()[position]), len(posterior.positions) + 1
                if (reason := why_not(self, n, posterior.variances[-1], gain)) is not None:
                    return posterior.as_selection(reason)
            chosen[position] = True
            posterior.observe(position)
        return posterior.as_selection(StopReason.N_SELECT)


def _nearest_first(
    query: FloatArray, candidates: FloatArray, relevance: FloatArray | None
) -> IntArray:
    """Return all positions by falling relevance or cosine, ties by position, shape (n,)."""
    query = as_finite_array("query", query, n_dimensions=1)
    # On unit rows the linear kernel is the cosine, and copies are made to tie.
    cosines = Posterior.prior(LinearKernel(), 1.0, query, candidates).covariance[0]
    by = cosines if relevance is None else checked_relevance(relevance, len(cosines))
    nearest: IntArray = np.argsort(-by, kind="stable")
    return nearest


def _selection(
    query: FloatArray, candidates: FloatArray, positions: IntArray, n_select: int
) -> Selection:
    """Return the choice of `positions` (k,) with its variances in the paper's setting."""
    complete = len(positions) == n_select
    return Selection(
        positions=positions,
        variances=posterior_variances(query, np.asarray(candidates)[positions]),
        stop_reason=StopReason.N_SELECT if complete else StopReason.POOL_EXHAUSTED,
    )
