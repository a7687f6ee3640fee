"""The greedy loop that the selectors share: what may be chosen next, and when to stop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, get_args

import numpy as np

from sift_core.checks import as_count, as_number, short_repr
from sift_core.errors import InvalidInputError
from sift_core.selection.backend import Backend
from sift_core.selection.limits import CLOSED, CheckedLimits, Priorities
from sift_core.selection.posterior import Posterior
from sift_core.types import BoolArray, FloatArray, Selection, StopReason

# Objectives closer than this, relative to the largest, count as tied. Guess: a few
# hundred roundings of float64, so that copies of a vector tie whatever order BLAS sums in.
TIE_TOLERANCE = 1e-12
# Share of the largest gain that a short candidate needs under a budget (decision 0020).
LEAST_SHARE = 0.01


@dataclass(frozen=True, kw_only=True, eq=False)
class Rules:
    """What a choice among n candidates must obey.

    Args:
        n_select: How many to choose at most, >= 0.
        priorities: Shape (n,). Candidates of a lower number go first, whatever their gain.
            `CLOSED` is never chosen.
        allow_repeats: Whether a candidate may be chosen again. Default: no.
        limits: The budget and the cap per group. Default: none.
        step_weights: Weights of the t targets that rank the candidates at each step, shape (k, t),
            k >= the number of choices. The stops use the posterior's weights. Default: those.
    """

    n_select: int
    priorities: Priorities
    allow_repeats: bool = False
    limits: CheckedLimits | None = None
    step_weights: FloatArray | None = None


class Conditioned(Protocol):
    """A model that the loop conditions on its choices: `Posterior`, or that of `lazy`."""

    variances: list[float]

    def observe(self, position: int) -> None:
        """Condition on a noisy observation of one candidate, and append the variance left."""


Best = Callable[[BoolArray, int], tuple[int, float]]
"""(candidates that are open, shape (n,); number of the step, from 0) → position and gain."""


@dataclass(frozen=True, kw_only=True)
class Stops:
    """The noise variance λ and the three stops. `SIFTSelector` explains them."""

    noise_variance: float = 0.1
    alpha: float | None = None
    max_variance: float | None = None
    min_gain: float | None = None

    def __post_init__(self) -> None:
        as_number("noise_variance", self.noise_variance, above=0)
        for name in ("alpha", "max_variance", "min_gain"):
            value = getattr(self, name)
            if value is not None:
                as_number(name, value, above=0, maximum=np.inf)

    def _choose(self, posterior: Conditioned, best: Best, rules: Rules) -> StopReason:
        """Add choices to `posterior`, which is changed in place, and return why they ended."""
        priorities, limits = rules.priorities.copy(), rules.limits
        if limits is not None:
            left, rooms = limits.budget, limits.rooms.copy()
        has_refused = False
        for step in range(rules.n_select):
            variance = posterior.variances[-1]
            if self.max_variance is not None and variance <= self.max_variance:
                return StopReason.MAX_VARIANCE
            if limits is not None:
                has_refused |= limits.close(priorities, left, rooms)
            first = priorities.min(initial=CLOSED)
            if first == CLOSED:
                return StopReason.LIMITS if has_refused else StopReason.POOL_EXHAUSTED
            position, gain = best(priorities == first, step)
            if (reason := self._reason_to_stop(step, variance, gain)) is not None:
                return reason
            if not rules.allow_repeats:
                priorities[position] = CLOSED
            if limits is not None:
                left -= float(limits.costs[position])
                if len(rooms):
                    rooms[limits.groups[position]] -= 1
            posterior.observe(position)
        return StopReason.N_SELECT

    def _reason_to_stop(self, step: int, variance: float, gain: float) -> StopReason | None:
        """Return why not to make the choice of a step, which would lower `variance` by `gain`."""
        if self.min_gain is not None and gain < self.min_gain:
            return StopReason.MIN_GAIN
        left = max(variance - gain, 0.0)
        if self.alpha is not None and left**0.5 > 1.0 / (self.alpha * (step + 1)):
            return StopReason.ALPHA  # paper, section 6: stop *before* this step
        return None


@dataclass(frozen=True, kw_only=True)
class GreedySelector(Stops, ABC):
    """The settings and the batches of `SIFTSelector` and `ContextSelector`.

    A selector holds settings alone, so any number of threads may use it.
    """

    backend: Backend = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (isinstance(self.backend, str) and self.backend in get_args(Backend)):
            raise InvalidInputError(
                f"`backend` must be 'auto', 'numpy' or 'numba', got {short_repr(self.backend)}"
            )

    @abstractmethod
    def select(self, query: FloatArray, candidates: FloatArray, n_select: int) -> Selection:
        """Return the choices for one query; see the subclass."""

    def select_batch(
        self,
        queries: FloatArray,
        candidates: Sequence[FloatArray] | FloatArray,
        n_select: int,
        *,
        n_threads: int = 1,
    ) -> list[Selection]:
        """Return what `select` returns for each query and its own candidates, in order.

        Args:
            queries: b queries, shape (b, d) or b arrays that `select` takes.
            candidates: Shape (b, n, d), or b arrays (n_i, d) where pools differ in length.
            n_select: How many to choose for each, >= 0.
            n_threads: Queries worked on at a time. More than 1 pays with the compiled
                backend, which releases Python's lock. Default: 1.

        Raises:
            InvalidInputError: If the numbers of queries and pools differ, or as `select`.
        """
        n_threads = as_count("n_threads", n_threads, minimum=1)
        try:
            n, n_pools = len(queries), len(candidates)
        except TypeError as error:
            raise InvalidInputError(f"`queries` and `candidates` must be rows: {error}") from error
        if n != n_pools:
            raise InvalidInputError(
                f"`candidates` must have one pool a query: {n} queries, {n_pools} pools"
            )
        counts = [n_select] * n
        if n_threads == 1:
            return list(map(self.select, queries, candidates, counts))
        from concurrent.futures import ThreadPoolExecutor  # not for those who select alone

        with ThreadPoolExecutor(n_threads) as executor:
            return list(executor.map(self.select, queries, candidates, counts))

    def _chosen(self, prior: Callable[[], Posterior], rules: Rules) -> Selection:
        """Return the choices in NumPy from a fresh `prior()`, which is called once or twice."""
        posterior = prior()
        if rules.limits is None:
            return self._added(posterior, rules)
        gains = posterior.gains()
        limits = without_poor(gains, rules.limits)
        rules = replace(rules, limits=limits)
        found = self._added(posterior, rules)
        single = better_alone(limits, gains, rules.priorities, found)
        return found if single is None else self._added(prior(), rules, first=single)

    def _added(self, posterior: Posterior, rules: Rules, first: int | None = None) -> Selection:
        """Return the choices that are added to `posterior`, the first of them given or the best."""
        prices = None if rules.limits is None else rules.limits.prices

        def best(is_open: BoolArray, step: int) -> tuple[int, float]:
            gains = posterior.gains()
            if first is not None and step == 0:
                return first, float(gains[first])
            worth = gains
            if rules.step_weights is not None:
                worth = posterior.gains(rules.step_weights[step])
            if prices is not None:
                worth = worth / prices
            position = first_largest(np.where(is_open, worth, -np.inf))
            return position, float(gains[position])

        return posterior.as_selection(self._choose(posterior, best, rules))


def without_poor(gains: FloatArray, limits: CheckedLimits) -> CheckedLimits:
    """Return limits under which short candidates that say next to nothing do not fit.

    Gain over cost favours an empty page with a heading, which fits into any rest of a budget.

    Args:
        gains: Before the first choice, shape (n,).
        limits: Of the n candidates.
    """
    if np.isinf(limits.budget) or not len(gains):
        return limits
    is_poor = (gains < LEAST_SHARE * gains.max()) & (limits.costs < np.median(limits.costs))
    costs: FloatArray = np.where(is_poor, np.inf, limits.costs)
    return replace(limits, costs=costs)


def better_alone(
    limits: CheckedLimits, gains: FloatArray, priorities: Priorities, found: Selection
) -> int | None:
    """Return the candidate within the budget that alone gains more than all those found.

    Gain over cost may miss it: a short chunk that tells little goes before a long one that
    tells all.

    Args:
        limits: Of the n candidates.
        gains: Before the first choice, shape (n,).
        priorities: As in `Rules`. Only candidates of the lowest number count.
        found: What was chosen by gain over cost.

    Returns:
        Its position, or None if there is none.
    """
    fits = (limits.costs <= limits.budget) & (priorities < CLOSED)
    if not fits.any() or (limits.costs == limits.costs[0]).all():
        return None
    fits &= priorities == priorities[fits].min()
    best = int(np.argmax(np.where(fits, gains, -np.inf)))
    gained = float(found.variances[0] - found.variances[-1])
    return best if gains[best] > gained * (1.0 + TIE_TOLERANCE) else None


def first_largest(values: FloatArray) -> int:
    """Return the lowest position whose value is the largest, up to rounding."""
    largest = values.max()
    return int(np.argmax(values >= largest - abs(largest) * TIE_TOLERANCE))
