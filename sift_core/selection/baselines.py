"""Selectors to compare with, behind the same protocol.

Nearest neighbors (NN) are a baseline of the paper. MMR is what vector stores and frameworks offer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sift_core.checks import as_count, as_finite_array, as_number, one_each
from sift_core.selection.greedy import first_largest
from sift_core.selection.kernels import LinearKernel, in_the_order_of
from sift_core.selection.posterior import Posterior, posterior_variances
from sift_core.types import FloatArray, IntArray, Selection, StopReason


@dataclass(frozen=True, kw_only=True)
class NearestNeighborSelector:
    """Chooses the candidates with the largest cosine, as plain retrieval does.

    Its variances are those of the paper's setting. `posterior_variances` computes others.

    Example:
        >>> chosen = NearestNeighborSelector().select(query.embedding, pool.embeddings, 2)
        >>> [pool.document_ids[row] for row in chosen.positions]
        ['prices', 'timetable']
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

        With `relevance` (n,), return the most relevant first. Ties go to the lowest position.
        No candidate is chosen twice.

        Raises:
            InvalidInputError: As `SIFTSelector.select`.
        """
        n_select = as_count("n_select", n_select, minimum=0)
        query = as_finite_array("query", query, n_dimensions=1)
        # On unit rows the linear kernel is the cosine, and copies are made to tie.
        cosines = Posterior.prior(LinearKernel(), 1.0, query, candidates).covariance[0]
        by = cosines if relevance is None else one_each("relevance", relevance, len(cosines))
        nearest: IntArray = np.argsort(-by, kind="stable")
        return _selection(query, candidates, nearest[:n_select], n_select)


@dataclass(frozen=True, kw_only=True)
class MMRSelector:
    """Chooses by maximal marginal relevance: near to the query, unlike the earlier choices.

    argmax w · cos(q, x) - (1 - w) · max cos(x, x_j) over the earlier choices x_j. Its variances
    are those of the paper's setting.

    Args:
        relevance_weight: w in [0, 1]. Larger values choose closer to the query; 1 chooses the
            nearest neighbours. Default: 0.7.

    Raises:
        InvalidInputError: If the weight is out of its range.

    References:
        Carbonell and Goldstein (1998), The Use of MMR, Diversity-Based Reranking for
        Reordering Documents and Producing Summaries, SIGIR.

    Example:
        >>> chosen = MMRSelector(relevance_weight=0.5).select(query.embedding, pool.embeddings, 2)
        >>> [pool.document_ids[row] for row in chosen.positions]
        ['prices', 'museum']
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

        Takes O(n_select · n · d) time. The first choice is the most relevant candidate. Ties go
        to the lowest position. With `relevance` (n,), the i-th most relevant takes the i-th
        largest cosine.

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
        positions: list[int] = []
        marginal, weight = nearness, self.relevance_weight
        for _ in range(min(n_select, len(rows))):
            positions.append(first_largest(marginal))
            np.maximum(redundancy, rows @ rows[positions[-1]], out=redundancy)
            marginal = weight * nearness - (1.0 - weight) * redundancy
            marginal[positions] = -np.inf
        return _selection(query, candidates, np.array(positions, dtype=np.intp), n_select)


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
