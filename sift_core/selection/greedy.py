"""The greedy loop that the selectors share: when to stop, and what may be chosen next."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, get_args

import numpy as np

from sift_core.checks import as_count, as_number, shown
from sift_core.errors import InvalidInputError
from sift_core.selection.backend import Backend
from sift_core.selection.kernels import RBFKernel
from sift_core.selection.limits import CHOSEN, Allowance, Limits, Tiers
from sift_core.selection.posterior import Posterior, check_noise_variance
from sift_core.types import FloatArray, IntArray, Selection, StopReason

# Objectives closer than this, relative to the largest, count as tied. Guess: a few
# hundred roundings of float64, so that copies of a vector tie whatever order BLAS sums in.
TIE_TOLERANCE = 1e-12


@dataclass(frozen=True, kw_only=True, eq=False)
class Turns:
    """Whose region each choice is for, where there are several questions.

    Args:
        weights: What each target counts for each question, shape (m, t), rows summing to 1.
        order: The question of each choice by number, shape (k,), at least one a choice.
    """

    weights: FloatArray
    order: IntArray


@dataclass(frozen=True, kw_only=True, eq=False)
class Problem:
    """What to choose where some of the candidates are the targets.

    Args:
        kernel: How much one candidate tells about another.
        cosines: Among the first candidates, shape (m, m), m <= n.
        targets: Positions of the targets, shape (t,).
        weights: What each counts, shape (t,), summing to 1.
        tiers: As in `GreedySelector._choose`, shape (n,). Changed in place.
        n_select: How many to choose, >= 0.
        limits: Within which to choose.
        turns: Whose region each choice is for; None for all of `weights` at every choice.
    """

    kernel: RBFKernel
    cosines: FloatArray
    targets: IntArray
    weights: FloatArray
    tiers: Tiers
    n_select: int
    limits: Limits | None
    turns: Turns | None = None


@dataclass(frozen=True, kw_only=True)
class GreedySelector(ABC):
    """What the greedy selectors have in common. Holds settings alone: safe in threads.

    `SIFTSelector` says what the settings mean.
    """

    noise_variance: float = 0.1
    alpha: float | None = None
    max_variance: float | None = None
    min_gain: float | None = None
    backend: Backend = "auto"

    def __post_init__(self) -> None:
        check_noise_variance(self.noise_variance)
        check_stops(self)
        if not (isinstance(self.backend, str) and self.backend in get_args(Backend)):
            raise InvalidInputError(
                f"`backend` must be 'auto', 'numpy' or 'numba', got {shown(self.backend)}"
            )

    @abstractmethod
    def select(
        self,
        query: FloatArray,
        candidates: FloatArray,
        n_select: int,
        *,
        relevance: FloatArray | None = None,
    ) -> Selection:
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
                backend, which leaves Python's lock.

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

    def _chosen(
        self,
        prior: Callable[[], Posterior],
        n_select: int,
        *,
        allow_repeats: bool,
        limits: Limits | None,
        tiers: Tiers | None = None,
        turns: Turns | None = None,
    ) -> Selection:
        """Return the choices from a fresh `prior()`, within limits if there are any.

        By gain for the cost, or beginning with the best single choice where that alone is better.
        `tiers` are as in `_choose` and changed in place; None for a single one.
        """
        posterior = prior()
        tiers = np.zeros(posterior.n, dtype=np.int8) if tiers is None else tiers
        if limits is None or n_select == 0:
            reason = self._choose(
                posterior, n_select, tiers, allow_repeats=allow_repeats, turns=turns
            )
            return posterior.as_selection(reason)
        gains, fresh = posterior.gains(), tiers.copy()
        single = limits.best_single(gains, tiers)
        reason = self._choose(
            posterior, n_select, tiers, allow_repeats=allow_repeats, limits=limits, turns=turns
        )
        found = posterior.as_selection(reason)
        if single is None or not is_better(gains[single], found):
            return found
        posterior = prior()
        reason = self._choose(
            posterior,
            n_select,
            fresh,
            allow_repeats=allow_repeats,
            limits=limits,
            turns=turns,
            first=single,
        )
        return posterior.as_selection(reason)

    def _choose(
        self,
        posterior: Posterior,
        n_select: int,
        tiers: Tiers,
        *,
        allow_repeats: bool,
        limits: Limits | None = None,
        turns: Turns | None = None,
        first: int | None = None,
    ) -> StopReason:
        """Add choices to `posterior` and return why they ended.

        Args:
            posterior: Changed in place.
            n_select: How many at most.
            tiers: Shape (n,). Candidates of a lower tier go first, whatever their gain.
                Changed in place: the tier of a choice becomes `CHOSEN` without repeats.
            allow_repeats: Whether a choice stays in its tier.
            limits: Within which to choose, by gain over `prices`.
            turns: Whose gain each choice goes by; the stops go by that of all.
            first: The first choice, whatever that is of it; the largest if None.
        """
        allowance = None if limits is None else Allowance(limits)
        prices = None if limits is None else limits.prices
        for n in range(1, n_select + 1):
            if is_certain(self, posterior.variances[-1]):
                return StopReason.MAX_VARIANCE
            if allowance is not None:
                allowance.close(tiers)
            tier = tiers.min(initial=CHOSEN)
            if tier == CHOSEN:
                is_limited = allowance is not None and allowance.has_refused
                return StopReason.LIMITS if is_limited else StopReason.POOL_EXHAUSTED
            gains = posterior.gains()
            own = gains if turns is None else posterior.gains(turns.weights[turns.order[n - 1]])
            worth = own if prices is None else own / prices
            position = first_largest(np.where(tiers == tier, worth, -np.inf))
            if first is not None and n == 1:
                position = first
            gain = float(gains[position])
            if (reason := why_not(self, n, posterior.variances[-1], gain)) is not None:
                return reason
            if not allow_repeats:
                tiers[position] = CHOSEN
            if allowance is not None:
                allowance.pay(position)
            posterior.observe(position)
        return StopReason.N_SELECT


class Stops(Protocol):
    """When a selector ends early; None for never. `SIFTSelector` says what they mean."""

    @property
    def alpha(self) -> float | None:
        """Stop before the n-th choice where σ_n > 1 / (alpha n)."""

    @property
    def max_variance(self) -> float | None:
        """Stop where so little variance is left."""

    @property
    def min_gain(self) -> float | None:
        """Stop before a choice that would lower it by less."""


def check_stops(stops: Stops) -> None:
    """Refuse what is no positive number."""
    for name in ("alpha", "max_variance", "min_gain"):
        value = getattr(stops, name)
        if value is not None:
            as_number(name, value, above=0, maximum=np.inf)


def is_certain(stops: Stops, variance: float) -> bool:
    """Return whether so little variance is left that nothing more is to be chosen."""
    return stops.max_variance is not None and variance <= stops.max_variance


def why_not(stops: Stops, n: int, variance: float, gain: float) -> StopReason | None:
    """Return why the n-th choice, which would lower `variance` by `gain`, is not to be made."""
    if stops.min_gain is not None and gain < stops.min_gain:
        return StopReason.MIN_GAIN
    left = max(variance - gain, 0.0)
    if stops.alpha is not None and left**0.5 > 1.0 / (stops.alpha * n):
        return StopReason.ALPHA  # paper, section 6: stop *before* this step
    return None


def is_better(gain: float, found: Selection) -> bool:
    """Tell whether one choice alone would lower the variance by more than all those found."""
    return bool(gain > float(found.variances[0] - found.variances[-1]) * (1.0 + TIE_TOLERANCE))


def first_largest(values: FloatArray) -> int:
    """Return the lowest position whose value is the largest, up to rounding."""
    largest = values.max()
    return int(np.argmax(values >= largest - abs(largest) * TIE_TOLERANCE))
