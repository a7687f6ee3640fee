"""The default for choosing text for a prompt: SIFT over the neighbourhood of the question.

Symbols: u(x, x') = (1 - cos(x, x')) / (1 - mean cosine of the pool) is 0 between copies and 1
between two chunks that are as unlike as the pool's usually are; paper symbols as in `sift`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sift_core.checks import checked_arrays, checked_rows, is_matrix, one_each
from sift_core.errors import InvalidInputError
from sift_core.selection.backend import compiled_for
from sift_core.selection.greedy import GreedySelector, Rules
from sift_core.selection.kernels import RBFKernel, in_the_order_of, unit_rows
from sift_core.selection.limits import CheckedLimits, Limits, checked_limits, number_to_select
from sift_core.selection.near_duplicates import (
    LIKELY_NEAR,
    NEVER_NEAR,
    NEVER_NEAR_IF_WEIGHTED,
    distances_to_earlier,
    first_of_class,
    first_of_each,
    near_duplicate_radius,
    nearest_earlier,
    preferred_of_each,
    stands_for,
)
from sift_core.selection.posterior import Posterior
from sift_core.selection.preferences import Preferences, checked_preferences
from sift_core.selection.region import (
    most_relevant_first,
    ranks_of,
    region_weights,
    typical_distance,
    typical_distance_of_each,
)
from sift_core.types import FloatArray, IntArray, Selection, StopReason

# The most relevant candidates, among which near-duplicates are told apart and which make up the
# region. Far more than a prompt takes, and the kernel's matrix of them is still small.
MAX_REGION = 500

# k(x, x') = exp(-KERNEL_DECAY · u): two usual chunks tell each other 2 % of what each is.
KERNEL_DECAY = 4.0


@dataclass(frozen=True, kw_only=True, eq=False)
class UnitRows:
    """The candidates as NumPy reads them. `compiled.CompiledRows` reads them as they came.

    Args:
        rows: Unit vectors, shape (n, d), float64.
        nearness: Cosines with the queries, shape (m, n).
        seen: Unit vectors that were seen before, shape (k, d). Default: none.
    """

    rows: FloatArray
    nearness: FloatArray
    seen: FloatArray | None = None

    def take(self, order: IntArray) -> UnitRows:
        """Return the rows at some positions, in that order."""
        return replace(self, rows=self.rows[order], nearness=self.nearness[:, order])

    def cosines(self, n: int) -> tuple[FloatArray, FloatArray]:
        """Return the cosines among the first n rows, and the largest of each with an earlier one.

        Shapes (n, n) and (n,). n is the number of rows if that is smaller.
        """
        found = self.rows[:n] @ self.rows[:n].T
        return found, nearest_earlier(found)

    def cosines_with_seen(self, n: int) -> FloatArray | None:
        """Return the cosines of the first n rows with those seen before, shape (n, k)."""
        return None if self.seen is None else self.rows[:n] @ self.seen.T

    def choose(
        self,
        selector: GreedySelector,
        kernel: RBFKernel,
        cosines: FloatArray,
        targets: IntArray,
        weights: FloatArray,
        rules: Rules,
    ) -> Selection:
        """Return the choices.

        Args:
            selector: Its noise variance and stops.
            kernel: How much one candidate tells about another.
            cosines: Among the first candidates, as `cosines` returned them.
            targets: Positions of the targets among the candidates, shape (t,).
            weights: Weight of each target, shape (t,), summing to 1.
            rules: What the choice must obey.
        """

        def prior() -> Posterior:
            return Posterior.prior(
                kernel,
                selector.noise_variance,
                self.rows[targets],
                self.rows,
                weights=weights,
                conditioned_on=self.seen,
            )

        return selector._chosen(prior, rules)


@dataclass(frozen=True, kw_only=True)
class ContextSelector(GreedySelector):
    """Chooses the candidates that together tell most about the neighbourhood of the query.

    The default for text in a prompt. If nothing repeats, it keeps the recall of nearest
    neighbours. If much repeats, it takes each distinct chunk once. Exact SIFT with several targets:

    1. Near-duplicates of one chunk count once. u is measured on the pool itself, so it means the
       same for every embedding model. The pool also shows how small u is between near-duplicates
       (`near_duplicates.near_duplicate_radius`). The most relevant or preferred one stands for
       all. The others are chosen only when nothing else is left.
    2. The targets are the distinct chunks near the query. A target counts exp(-2 z) if its
       relevance is z standard deviations (of the pool's distinct chunks) below the best. Its
       prior weight is another factor. Each of several queries has its own region, and choices
       are for one query after the other, given all earlier choices (decision 0025).
    3. Choices minimise the sum of the targets' posterior variances under the RBF kernel
       exp(-4 u), which is 1 before the first choice.

    Args:
        noise_variance: λ > 0. Larger values allow more overlap. Default: 0.2.
        alpha: Stop before the first step n at which σ_n > 1 / (alpha · n). σ² is the weighted
            mean variance of the region. Default: never.
        max_variance: Stop as soon as σ² is at most this, in (0, 1). Default: never.
        min_gain: Stop before a choice that would lower σ² by less than this. Default: never.
        backend: "numba" runs compiled loops and "numpy" never does. "auto" starts with NumPy and
            switches to compiled loops when they are available (`load_compiled`). The choices are
            the same. Default: "auto".

    Raises:
        InvalidInputError: If a number is out of its range.

    References:
        docs/decisions/0006: derivation and measurements. Hübotter et al. (2024),
        Transductive Active Learning: VTL, the method with a space of targets.

    Example:
        >>> selector = ContextSelector(min_gain=0.01)
        >>> chosen = selector.select(query.embedding, pool.embeddings, 2)
        >>> [pool.document_ids[row] for row in chosen.positions]
        ['prices', 'timetable']
    """

    noise_variance: float = 0.2

    def select(
        self,
        query: FloatArray,
        candidates: FloatArray,
        n_select: int | None = None,
        *,
        relevance: FloatArray | None = None,
        conditioned_on: FloatArray | None = None,
        limits: Limits | None = None,
        preferences: Preferences | None = None,
    ) -> Selection:
        """Return the choices for one query, or for several at once, no candidate twice.

        Takes O(r · n · (d + n_select)) time and O(r · n) memory, r = min(n, 500) for the
        region. Computes in float64. Ties go to the lowest position.

        Args:
            query: Shape (d,), or several, shape (m, d): the parts of a question or its rewrites.
                Of several queries, the best rank of a candidate for any of them is its relevance.
                A query that is passed twice has two shares of the choices.
            candidates: Shape (n, d), of all queries together. n may be 0.
            n_select: How many to choose at most, >= 0. Default: as many as the budget allows.
            relevance: Scores of another ranker, shape (n,), higher is better, for example of a
                cross-encoder. Only their order counts: the i-th best candidate takes the i-th
                largest cosine. They change the weights of the targets and not the kernel. For
                several queries one row each, shape (m, n), or one order for all. Default: cosines.
            conditioned_on: Embeddings that were seen before, shape (m, d). Candidates that are
                near-duplicates of them come last. Default: none.
            limits: A budget, and how many of one group at most. Default: no limits.
            preferences: Which near-duplicates to choose, prior weights, and the weights of
                targets in place of step 2. Default: none.

        Returns:
            The positions in order of choice, with the weighted mean variance of the region, or
            of all regions, before and after each.

        Raises:
            InvalidInputError: If shapes do not fit, a number is not finite, a vector is
                all zero, `n_select` is not a count, or a limit is out of range.
            MissingDependencyError: If `backend` is "numba" and it is not installed.
        """
        points, candidates = checked_arrays(query, candidates)
        orders = _orders(relevance, len(points))
        n = len(candidates)
        checked = checked_limits(limits, n)
        preferences = checked_preferences(preferences, n, len(points))
        n_select = number_to_select(n_select, n, checked, repeats=False)
        rows = self._read(points, candidates, n_select, conditioned_on)
        nearness = _ranked(rows.nearness, orders)
        if n == 0:
            reason = StopReason.POOL_EXHAUSTED if n_select else StopReason.N_SELECT
            nothing = np.empty(0, dtype=np.intp)
            return Selection(positions=nothing, variances=np.ones(1), stop_reason=reason)
        order = most_relevant_first(ranks_of(_places(orders) if orders else nearness))
        is_sorted = bool((order == np.arange(n)).all())  # as stores answer: saves a copy
        if not is_sorted:
            rows, nearness = rows.take(order), nearness[:, order]
            checked = None if checked is None else checked.take(order)
            preferences = preferences.take(order)
        found = self._select_sorted(rows, nearness, n_select, checked, preferences)
        if is_sorted or found.stands_for is None:
            return found
        stands_for = np.empty_like(order)
        stands_for[order] = order[found.stands_for]
        return replace(found, positions=order[found.positions], stands_for=stands_for)

    def _read(
        self,
        points: FloatArray,
        candidates: FloatArray,
        n_select: int,
        conditioned_on: FloatArray | None,
    ) -> UnitRows:
        """Return the candidates (n, d) as the backend reads them; `points` are queries (m, d)."""
        seen = None
        if conditioned_on is not None:
            seen = unit_rows(checked_rows("conditioned_on", conditioned_on, points.shape[1]))
        has_seen = seen is not None and len(seen) > 0
        compiled = None if has_seen else compiled_for(self.backend, candidates)
        if compiled is not None:
            n_choices = min(n_select, len(candidates))
            found: UnitRows | None = compiled.read(points, candidates, n_choices)
            if found is not None:
                return found
        rows = unit_rows(candidates)
        return UnitRows(rows=rows, nearness=_products(rows, points), seen=seen)

    def _select_sorted(
        self,
        rows: UnitRows,
        nearness: FloatArray,
        n_select: int,
        limits: CheckedLimits | None,
        preferences: Preferences,
    ) -> Selection:
        """Return the choices among candidates (n, d) that come most relevant first."""
        prefer, prior = preferences.prefer, preferences.prior
        target_weights = preferences.target_weights
        cosines, nearest = rows.cosines(MAX_REGION)
        n_near = len(cosines)
        ranks = ranks_of(nearness)
        typical = typical_distance_of_each(cosines, ranks[:, :n_near])
        with_seen = rows.cosines_with_seen(n_near)
        distance = distances_to_earlier(nearest, typical, with_seen)
        largest = NEVER_NEAR if target_weights is None else NEVER_NEAR_IF_WEIGHTED
        radius = near_duplicate_radius(distance, largest)
        is_new = distance > (radius if prefer is None else max(radius, LIKELY_NEAR))
        if not is_new.any():  # all of it was seen before, and differs by relevance alone
            is_new[:] = True
        # Of near-duplicates one, in the order of `relevance`.
        taken: IntArray = np.flatnonzero(is_new)
        first = first_of_class(cosines, is_new, with_seen)
        preferred = [taken]
        relevance, ranks = nearness[:, taken], ranks[:, taken]
        given = None if target_weights is None else target_weights[:, taken]
        if prefer is not None:
            preferred = [preferred_of_each(first, row[:n_near]) for row in prefer]
            found = np.concatenate(preferred)
            at = np.sort(np.unique(found, return_index=True)[1])  # each once, those of row 0 first
            classes, taken = at % len(taken), found[at]
            relevance, ranks = relevance[:, classes], ranks[:, classes]
            given = None if given is None else given[:, classes]
        prior = None if prior is None else prior[taken]
        of_each = region_weights(n_near, taken, relevance, ranks, prior, given)
        m = len(of_each)
        weights = of_each[0] if m == 1 else np.full(m, 1.0 / m) @ of_each
        targets = np.flatnonzero(weights)
        priorities = np.ones(nearness.shape[1], dtype=np.int8)
        priorities[taken] = 0
        step_weights = None
        if m > 1:  # one query after the other
            turns = np.arange(min(n_select, len(priorities))) % m
            step_weights = of_each[:, targets][turns]
        kernel = RBFKernel(length_scale=(typical / KERNEL_DECAY) ** 0.5)
        rules = Rules(
            n_select=n_select, priorities=priorities, limits=limits, step_weights=step_weights
        )
        chosen = rows.choose(self, kernel, cosines, targets, weights[targets], rules)
        return replace(chosen, stands_for=stands_for(first, preferred[0], len(priorities)))


def distinct(
    query: FloatArray,
    candidates: FloatArray,
    *,
    relevance: FloatArray | None = None,
    prefer: FloatArray | None = None,
) -> IntArray:
    """Return the positions of the candidates that are not near-duplicates of a more relevant one.

    With `prefer`, the preferred one of each class of near-duplicates. `ContextSelector` chooses
    the others only when nothing else is left.

    It finds near-duplicates as `ContextSelector` does, with two differences. It looks at all
    candidates, and reads the radius from the 500 most relevant. And it takes two usual chunks
    to be at least as unlike as a candidate is to the query. Otherwise, in a pool of one text
    many times over, the mean distance would be that of near-duplicates, and they would count as
    distinct.

    Takes O(n · (r + m) · d) time for m distinct chunks, r = min(n, 500): 1 ms for 200 candidates
    of 384 dimensions, 20 ms for 1,600.

    Args:
        query: Shape (d,), or several, shape (m, d).
        candidates: Shape (n, d). n may be 0.
        relevance: Scores of another ranker, shape (n,), higher is better. For several queries
            one row each, shape (m, n), or one order for all. Default: cosines.
        prefer: Which near-duplicate to return, shape (n,): the highest. Default: the most
            relevant.

    Returns:
        Shape (m,), m <= n, most relevant first.

    Raises:
        InvalidInputError: If shapes do not fit, a number is not finite, or a vector is all zero.
    """
    points, candidates = checked_arrays(query, candidates)
    prefer = None if prefer is None else one_each("prefer", prefer, len(candidates))
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
    has_classes = prefer is not None
    first = first_of_each(rows, typical, n_read=MAX_REGION, with_classes=has_classes)
    return order[first >= 0 if prefer is None else preferred_of_each(first, prefer[order])]


def distinct_of_region(cosines: FloatArray, relevance: FloatArray) -> IntArray:
    """Return what `ContextSelector` weights by `target_weights`: of near-duplicates one.

    Costs O(r²) for r = min(n, 500): 0.3 ms for 200 candidates.

    Args:
        cosines: Among the candidates, shape (n, n).
        relevance: To one question, shape (n,), higher is better.

    Returns:
        Positions, shape (m,), m <= r, most relevant first.
    """
    order = most_relevant_first(ranks_of(relevance[np.newaxis]))[:MAX_REGION]
    cosines = cosines[np.ix_(order, order)]
    distance = distances_to_earlier(nearest_earlier(cosines), typical_distance(cosines))
    return order[distance > near_duplicate_radius(distance, NEVER_NEAR_IF_WEIGHTED)]


def _products(rows: FloatArray, points: FloatArray) -> FloatArray:
    """Return the cosines of unit rows (n, d) with queries (m, d), shape (m, n), one by one.

    So each query's are the same, whatever others there are.
    """
    return np.stack([rows @ point for point in unit_rows(points)])


def _orders(relevance: FloatArray | None, n_queries: int) -> list[FloatArray]:
    """Return the scores of another ranker for each query; empty if there are none."""
    if relevance is None:
        return []
    has_rows = is_matrix(relevance) and (n_queries > 1 or len(relevance) == 1)
    orders = list(relevance) if has_rows else [relevance] * n_queries
    if len(orders) != n_queries:
        raise InvalidInputError(
            f"`relevance` must have one row a query: {n_queries} query(s), {len(orders)} row(s)"
        )
    return orders


def _places(orders: list[FloatArray]) -> FloatArray:
    """Return the place of each score among the different ones, shape (m, n), 0 the lowest.

    Equal embeddings have equal cosines, in whatever order these are dealt out. Places tell them
    apart by the scores.
    """
    found = [np.unique(np.asarray(own), return_inverse=True)[1] for own in orders]
    return np.stack(found).astype(np.float64)


def _ranked(nearness: FloatArray, orders: list[FloatArray]) -> FloatArray:
    """Return cosines (m, n) in the order of the scores of another ranker for each query."""
    if not orders:
        return nearness
    return np.stack([in_the_order_of(own, row) for own, row in zip(orders, nearness, strict=True)])
