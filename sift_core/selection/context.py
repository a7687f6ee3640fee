"""The default for choosing text for a prompt: SIFT over the neighbourhood of the question.

Symbols: u(x, x') = (1 - cos(x, x')) / (1 - mean cosine of the pool) is 0 between copies and 1
between two chunks that are as unlike as the pool's usually are; paper symbols as in `sift`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from sift_core.checks import checked_arrays, checked_rows, checked_weights, is_matrix
from sift_core.errors import InvalidInputError
from sift_core.selection.backend import compiled_for
from sift_core.selection.greedy import GreedySelector, Problem, Turns
from sift_core.selection.kernels import RBFKernel, in_the_order_of, unit_rows
from sift_core.selection.limits import Limits, limits_of, number_to_select
from sift_core.selection.near_duplicates import (
    LIKELY_NEAR,
    distances_to_earlier,
    first_of_class,
    first_of_each,
    near_duplicate_radius,
    nearest_earlier,
    preferred_of_each,
)
from sift_core.selection.posterior import Posterior
from sift_core.selection.preference import Preference, preference_of
from sift_core.selection.region import (
    most_relevant_first,
    ranks_of,
    region_weights,
    turns_of,
    typical_distance_of_each,
)
from sift_core.types import FloatArray, IntArray, Selection, StopReason

# The most relevant candidates, among which near-duplicates are told apart and which make up the
# region. Far more than a prompt takes, and the kernel's matrix of them is still small.
MAX_REGION = 500

# k(x, x') = exp(-KERNEL_DECAY · u): two usual chunks tell each other 2 % of what each is.
KERNEL_DECAY = 4.0


@dataclass(frozen=True, kw_only=True)
class ContextSelector(GreedySelector):
    """Chooses the candidates that together tell most about the neighbourhood of the query.

    The default for text in a prompt: where nothing repeats it keeps the recall of nearest
    neighbours, where much does it takes each distinct chunk once. Exact SIFT with several targets:

    1. Near-duplicates of one chunk count once. u is measured on the pool itself, so that it
       means the same for every embedding model; how small u is between near-duplicates is
       read from the pool (`near_duplicates.near_duplicate_radius`). The most relevant one
       stands for all, or the one that is preferred; the others are chosen only when nothing
       else is left.
    2. What is to become certain is not the query alone but the candidates near it: the
       targets are the distinct chunks, weighted by exp(-2 z) where their relevance is z standard
       deviations (of the pool's distinct chunks) below the best; that of near-duplicates is the
       best of theirs. A prior `weight` is a factor of it. Of several queries each has such a
       region, and choices are for one after the other, given all that was chosen (decision 0025).
    3. Choices minimise the sum of the targets' posterior variances under the RBF kernel
       exp(-4 u), which is 1 before the first choice.

    Args:
        noise_variance: λ > 0. Larger values allow more overlap.
        alpha: As in `SIFTSelector`, with σ² the weighted mean variance of the region.
        max_variance: Likewise, in (0, 1): how much of the region may stay untold.
        min_gain: Likewise.
        backend: Likewise.

    Raises:
        InvalidInputError: If a number is out of its range.

    References:
        docs/decisions/0006: derivation and measurements. Hübotter et al. (2024),
        Transductive Active Learning: VTL, the method with a space of targets.
    """

    noise_variance: float = 0.2

    def select(
        self,
        query: FloatArray,
        candidates: FloatArray,
        n_select: int | None = None,
        *,
        relevance: FloatArray | None = None,
        weights: FloatArray | None = None,
        conditioned_on: FloatArray | None = None,
        costs: FloatArray | None = None,
        budget: float | None = None,
        groups: Sequence[Hashable] | IntArray | None = None,
        max_per_group: int | None = None,
        prefer: FloatArray | None = None,
        weight: FloatArray | None = None,
    ) -> Selection:
        """Return the choices for one query, or for several at once, no candidate twice.

        Takes O(r · n · (d + n_select)) time and O(r · n) memory, r = min(n, 500) for the
        region. Computes in float64. Ties go to the lowest position.

        Args:
            query: Shape (d,), or several, shape (m, d): the parts of a question or its rewrites.
                The region of each is to become certain. Most relevant is then what has the best
                rank for any of them, the i-th of one as relevant as the i-th of another.
            candidates: Shape (n, d), of all queries together. n may be 0.
            n_select: How many to choose at most, >= 0. None, with a budget, for as many as
                that allows.
            relevance: What another ranker thinks of each candidate, shape (n,), higher is
                better: a cross-encoder's scores, fused ranks. Only their order counts: the
                i-th best takes the place of the i-th largest cosine. They weigh the
                targets and leave the kernel as it is, which so stays positive semidefinite.
                Of several queries one row each, shape (m, n), or one order for all.
            weights: Of several queries, which share of the choices each has, shape (m,), >= 0;
                all alike if None.
            conditioned_on: Embeddings of what was shown before, shape (m, d). Candidates that
                are near-duplicates of them come last.
            costs: What each candidate costs, shape (n,), > 0, in any unit, for instance tokens;
                with `budget`.
            budget: What the choices may cost together, > 0. Of those that still fit, the one
                with the largest gain over √cost is next, or first the best single one where
                it alone is worth more than all of these (decision 0020: what that guarantees).
            groups: The group of each candidate, n names or numbers, for instance of
                documents; with `max_per_group`.
            max_per_group: How many of one group at most, >= 1.
            prefer: Which of several near-duplicates to choose, shape (n,), for instance dates
                in seconds: the highest stands for all, ties go to the more relevant, then to the
                lower position. Only their order counts. The most relevant one if None.
                Among the most relevant 500; what is closer than u = .15 then is a
                near-duplicate in any pool (decision 0021).
            weight: What each candidate counts beforehand, shape (n,), > 0, for instance trust or
                recency. Multiplies its weight as a target, so that the region moves towards
                what counts more; halving it does as much as .35 standard deviations less
                relevance. Only ratios matter. Near-duplicates have the weight of the one that
                stands for them. All alike if None. (`weights` are of queries.)

        Returns:
            The positions in order of choice, with the weighted mean variance of the region, or
            of all regions, before and after each.

        Raises:
            InvalidInputError: If shapes do not fit, a number is not finite, a vector is
                all zero, `n_select` is not a count, or a limit cannot be one.
            MissingDependencyError: If `backend` is "numba" and it is not installed.
        """
        points, candidates = checked_arrays(query, candidates)
        shares = checked_weights(weights, len(points))
        orders = _orders(relevance, len(points))
        if not (counts := shares > 0).all():
            points, shares = points[counts], shares[counts]
            orders = [orders[i] for i in np.flatnonzero(counts)] if orders else []
        shares = shares / shares.sum()
        limits = limits_of(
            len(candidates), costs=costs, budget=budget, groups=groups, max_per_group=max_per_group
        )
        preference = preference_of(len(candidates), prefer=prefer, weight=weight)
        n_select = number_to_select(n_select, len(candidates), limits, repeats=False)
        pool = self._read(points, candidates, n_select, conditioned_on)
        nearness = _ranked(pool.nearness, orders)
        if len(candidates) == 0:
            reason = StopReason.POOL_EXHAUSTED if n_select else StopReason.N_SELECT
            nothing = np.empty(0, dtype=np.intp)
            return Selection(positions=nothing, variances=np.ones(1), stop_reason=reason)
        order = most_relevant_first(ranks_of(nearness))
        if (order == np.arange(len(order))).all():  # as stores answer: saves a copy
            return self._select_sorted(pool, nearness, shares, n_select, limits, preference)
        limits = None if limits is None else limits.take(order)
        selection = self._select_sorted(
            pool.take(order), nearness[:, order], shares, n_select, limits, preference.take(order)
        )
        return replace(selection, positions=order[selection.positions])

    def _read(
        self,
        points: FloatArray,
        candidates: FloatArray,
        n_select: int,
        conditioned_on: FloatArray | None,
    ) -> _Rows:
        """Return the candidates (n, d) as the backend reads them; `points` are queries (m, d)."""
        seen = None
        if conditioned_on is not None:
            seen = unit_rows(checked_rows("conditioned_on", conditioned_on, points.shape[1]))
        if seen is None or not len(seen):
            compiled = compiled_for(self.backend, candidates)
            n_choices = min(n_select, len(candidates))
            if compiled is not None and compiled.can_read(points, candidates, n_choices):
                found: _Rows | None = compiled.CompiledRows.of(points, candidates)
                if found is not None:
                    return found
        rows = unit_rows(candidates)
        return _UnitRows(rows=rows, nearness=_products(rows, points), seen=seen)

    def _select_sorted(
        self,
        rows: _Rows,
        nearness: FloatArray,
        shares: FloatArray,
        n_select: int,
        limits: Limits | None,
        preference: Preference,
    ) -> Selection:
        """Return the choices among candidates (n, d) that come most relevant first."""
        cosines, nearest = rows.cosines(MAX_REGION)
        n_near = len(cosines)
        ranks = ranks_of(nearness)
        typical = typical_distance_of_each(cosines, ranks[:, :n_near])
        shown = rows.shown(n_near)
        distance = distances_to_earlier(nearest, typical, shown)
        radius = near_duplicate_radius(distance)
        is_new = distance > (radius if preference.prefer is None else max(radius, LIKELY_NEAR))
        if not is_new.any():  # all of it was shown before, and differs by relevance alone
            is_new[:] = True
        # Of near-duplicates one, in the order of `relevance`.
        taken: IntArray = np.flatnonzero(is_new)
        relevance, ranks = nearness[:, taken], ranks[:, taken]
        if preference.prefer is not None:
            first = first_of_class(cosines, is_new, shown)
            taken = preferred_of_each(first, preference.prefer[:n_near])
        known = None if preference.weight is None else preference.weight[taken]
        of_each = region_weights(n_near, taken, relevance, ranks, known)
        weights = of_each[0] if len(of_each) == 1 else shares @ of_each
        targets = np.flatnonzero(weights)
        tiers = np.ones(nearness.shape[1], dtype=np.int8)
        tiers[taken] = 0
        turns = None
        if len(of_each) > 1:
            order = turns_of(shares, min(n_select, len(tiers)))
            turns = Turns(weights=of_each[:, targets], order=order)
        kernel = RBFKernel(length_scale=(typical / KERNEL_DECAY) ** 0.5)
        problem = Problem(
            kernel=kernel,
            cosines=cosines,
            targets=targets,
            weights=weights[targets],
            tiers=tiers,
            n_select=n_select,
            limits=limits,
            turns=turns,
        )
        return rows.choose(self, problem)


class _Rows(Protocol):
    """Candidates as one backend reads them: `_UnitRows`, or `compiled.CompiledRows`."""

    @property
    def nearness(self) -> FloatArray:
        """Cosines with the queries, shape (m, n)."""

    def take(self, order: IntArray) -> _Rows:
        """Return the rows at some positions, in that order."""

    def cosines(self, n: int) -> tuple[FloatArray, FloatArray]:
        """Return those among the first n rows, and the largest of each with an earlier one.

        Shapes (n, n) and (n,); n is the number of rows if that is smaller.
        """

    def shown(self, n: int) -> FloatArray | None:
        """Return the cosines of the first n rows with what was shown before, shape (n, m)."""

    def choose(self, selector: ContextSelector, problem: Problem) -> Selection:
        """Return the choices."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _UnitRows:
    """Candidates of unit length in float64, shape (n, d); `seen` (m, d) likewise, or None."""

    rows: FloatArray
    nearness: FloatArray
    seen: FloatArray | None

    def take(self, order: IntArray) -> _UnitRows:
        return replace(self, rows=self.rows[order], nearness=self.nearness[:, order])

    def cosines(self, n: int) -> tuple[FloatArray, FloatArray]:
        found = self.rows[:n] @ self.rows[:n].T
        return found, nearest_earlier(found)

    def shown(self, n: int) -> FloatArray | None:
        return None if self.seen is None else self.rows[:n] @ self.seen.T

    def choose(self, selector: ContextSelector, problem: Problem) -> Selection:
        def prior() -> Posterior:
            return Posterior.prior(
                problem.kernel,
                selector.noise_variance,
                self.rows[problem.targets],
                self.rows,
                weights=problem.weights,
                conditioned_on=self.seen,
            )

        return selector._chosen(
            prior,
            problem.n_select,
            allow_repeats=False,
            limits=problem.limits,
            tiers=problem.tiers,
            turns=problem.turns,
        )


def distinct(
    query: FloatArray,
    candidates: FloatArray,
    *,
    relevance: FloatArray | None = None,
    prefer: FloatArray | None = None,
) -> IntArray:
    """Return the positions of the candidates that are not near-duplicates of a more relevant one.

    With `prefer`, of each of these the near-duplicate that is preferred.

    What there is to choose from: `ContextSelector` chooses the others only when nothing else is
    left. They are told apart as it does, with two differences. All candidates are looked at,
    not only the most relevant 500; the radius is read from those. And two chunks are taken
    to be usually at least as unlike as a candidate is to the query: in a pool that is one
    text many times over the mean distance is that of near-duplicates, and would make them
    distinct.

    Takes O(n · (r + m) · d) time for m distinct chunks, r = min(n, 500): 1 ms for 200 candidates
    of 384 dimensions, 20 ms for 1,600.

    Args:
        query: Shape (d,), or several, shape (m, d).
        candidates: Shape (n, d). n may be 0.
        relevance: As in `ContextSelector.select`.
        prefer: Likewise.

    Returns:
        Shape (m,), m <= n, most relevant first.

    Raises:
        InvalidInputError: If shapes do not fit, a number is not finite, or a vector is all zero.
    """
    points, candidates = checked_arrays(query, candidates)
    preference = preference_of(len(candidates), prefer=prefer)
    rows: FloatArray = unit_rows(candidates)
    nearness = _ranked(_products(rows, points), _orders(relevance, len(points)))
    ranks = ranks_of(nearness)
    order = most_relevant_first(ranks)
    if len(rows) == 0:
        return order
    rows, nearness = rows[order], nearness[:, order].max(axis=0)  # with the nearest query
    near = rows[:MAX_REGION]
    typical = typical_distance_of_each(near @ near.T, ranks[:, order[:MAX_REGION]])
    typical = max(typical, 1.0 - float(nearness[:MAX_REGION].mean()))
    first = first_of_each(
        rows, typical, n_read=MAX_REGION, with_classes=preference.prefer is not None
    )
    if preference.prefer is not None:
        return order[preferred_of_each(first, preference.prefer[order])]
    return order[first >= 0]


def _products(rows: FloatArray, points: FloatArray) -> FloatArray:
    """Return the cosines of unit rows (n, d) with queries (m, d), shape (m, n), one by one.

    So each query's are the same, whatever others there are.
    """
    return np.stack([rows @ point for point in unit_rows(points)])


def _orders(relevance: FloatArray | None, n_queries: int) -> list[FloatArray]:
    """Return what another ranker, asked (n,) or (m, n), thinks for each query; empty for None."""
    if relevance is None:
        return []
    has_rows = is_matrix(relevance) and (n_queries > 1 or len(relevance) == 1)
    orders = list(relevance) if has_rows else [relevance] * n_queries
    if len(orders) != n_queries:
        raise InvalidInputError(
            f"`relevance` must have one row a query: {n_queries} query(s), {len(orders)} row(s)"
        )
    return orders


def _ranked(nearness: FloatArray, orders: list[FloatArray]) -> FloatArray:
    """Return cosines (m, n) in the order of what another ranker thinks for each query."""
    if not orders:
        return nearness
    return np.stack([in_the_order_of(own, row) for own, row in zip(orders, nearness, strict=True)])
