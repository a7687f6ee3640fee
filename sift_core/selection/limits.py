"""What a choice may come to: so much cost in all, so many of one group."""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from sift_core.checks import as_count, as_finite_array, as_number
from sift_core.errors import InvalidInputError
from sift_core.protocols import Selector
from sift_core.types import FloatArray, IntArray

Tiers: TypeAlias = np.ndarray[tuple[Any, ...], np.dtype[np.int8]]
LARGEST_BUDGET = 2**53  # tokens: more than any texts have, and a float yet
CHOSEN = 127  # the tier of what may not be chosen (again)
LARGEST_RATIO = 1e12  # of two costs: gains over costs stay far from where float64 ends
COST_POWER = 0.5  # of a cost, that a gain is divided by: decision 0020
ROUNDING = 1e-12  # of a sum of costs, relative to the budget


@dataclass(frozen=True, kw_only=True, eq=False)
class Limits:
    """A budget, a cap per group, or both; see `limits_of` for the checked way to make them.

    Args:
        costs: What each candidate costs, shape (n,), float64; the dearest 1.
        budget: What the choices may cost together, in the same unit; None without a budget.
        groups: The group of each candidate by number, shape (n,), from 0; empty without groups.
        max_per_group: How many of one group may be chosen.
    """

    costs: FloatArray
    budget: float | None
    groups: IntArray
    max_per_group: int

    def take(self, order: IntArray) -> Limits:
        """Return the limits of the candidates at some positions, in that order."""
        groups = self.groups[order] if len(self.groups) else self.groups
        return replace(self, costs=self.costs[order], groups=groups)

    def rooms(self) -> IntArray:
        """Return how many may be chosen of each group before the first choice, shape (g,)."""
        room = min(self.max_per_group, np.iinfo(np.int64).max)
        return np.full(int(self.groups.max(initial=-1)) + 1, room, dtype=np.int64)

    @property
    def prices(self) -> FloatArray:
        """What gains are divided by, shape (n,): the square roots of the costs."""
        prices: FloatArray = self.costs**COST_POWER
        return prices

    @property
    def spendable(self) -> float:
        """The budget, and what the rounding of its sum may come to; infinite without one."""
        return np.inf if self.budget is None else self.budget * (1.0 + ROUNDING)

    def best_single(self, gains: FloatArray, tiers: Tiers) -> int | None:
        """Return what is best alone within the budget, of the lowest tier; None for nothing.

        Density may miss it: a short chunk that tells little goes before a long one that tells all.
        """
        fits = (self.costs <= self.spendable) & (tiers < CHOSEN)
        if not fits.any() or (self.costs == self.costs[0]).all():
            return None
        fits &= tiers == tiers[fits].min()
        return int(np.argmax(np.where(fits, gains, -np.inf)))


class Allowance:
    """What the limits still allow in one selection."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._left = limits.spendable
        self._rooms = limits.rooms()
        self.has_refused = False

    def close(self, tiers: Tiers) -> None:
        """Put what is no longer allowed into the tier of the chosen; that it stays."""
        limits = self._limits
        refused = limits.costs > self._left
        if len(limits.groups):
            refused |= self._rooms[limits.groups] == 0
        refused &= tiers < CHOSEN
        self.has_refused |= bool(refused.any())
        tiers[refused] = CHOSEN

    def pay(self, position: int) -> None:
        """Count a choice."""
        self._left -= float(self._limits.costs[position])
        if len(self._limits.groups):
            self._rooms[self._limits.groups[position]] -= 1


def limits_of(
    n: int,
    *,
    costs: FloatArray | None = None,
    budget: float | None = None,
    groups: Sequence[Hashable] | IntArray | None = None,
    max_per_group: int | None = None,
) -> Limits | None:
    """Return checked limits of n candidates; None where nothing is limited.

    Args:
        n: How many candidates there are.
        costs: Shape (n,), > 0 and within 1e12 times the smallest, of any unit, for instance
            tokens; with `budget`.
        budget: > 0, in the same unit; with `costs`.
        groups: n names or numbers, for instance of documents; with `max_per_group`.
        max_per_group: >= 1; with `groups`.

    Raises:
        InvalidInputError: If one comes without the other, there are not n, or one is out of range.
    """
    for one, other, given, missing in (
        ("costs", "budget", costs, budget),
        ("groups", "max_per_group", groups, max_per_group),
    ):
        if (given is None) != (missing is None):
            present, absent = (one, other) if missing is None else (other, one)
            raise InvalidInputError(f"`{present}` limits nothing without `{absent}`; pass both")
    if costs is None and groups is None:
        return None
    prices = np.ones(n) if costs is None else _checked_costs(costs, n)
    dearest = float(prices.max(initial=0.0)) or 1.0
    return Limits(
        costs=prices / dearest,
        budget=None if budget is None else as_number("budget", budget, above=0) / dearest,
        groups=np.empty(0, dtype=np.int64) if groups is None else _numbered(groups, n),
        max_per_group=(
            n if max_per_group is None else as_count("max_per_group", max_per_group, minimum=1)
        ),
    )


def _checked_costs(costs: FloatArray, n: int) -> FloatArray:
    costs = as_finite_array("costs", costs, n_dimensions=1).astype(np.float64)
    if len(costs) != n:
        raise InvalidInputError(
            f"`costs` must have one number a candidate: {n} candidate(s), {len(costs)} number(s)"
        )
    if not (costs > 0).all():
        first = int(np.argmin(costs > 0))
        raise InvalidInputError(f"`costs` must be > 0, got {costs[first]:g} at {first}")
    if n and not costs.min() >= costs.max() / LARGEST_RATIO:
        raise InvalidInputError(
            f"`costs` must be within a factor of {LARGEST_RATIO:g} of each other, got "
            f"{costs.min():g} to {costs.max():g}"
        )
    return costs


def _numbered(groups: Sequence[Hashable] | IntArray, n: int) -> IntArray:
    """Return the groups by number, in the order in which they first come, shape (n,)."""
    if isinstance(groups, str):
        raise InvalidInputError("`groups` must have one name a candidate, got one text")
    names = groups.tolist() if isinstance(groups, np.ndarray) else list(groups)
    if len(names) != n:
        raise InvalidInputError(
            f"`groups` must have one name a candidate: {n} candidate(s), {len(names)} name(s)"
        )
    numbers: dict[Hashable, int] = {}
    try:
        return np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int64)
    except TypeError as error:  # a list has no hash
        raise InvalidInputError(
            f"`groups` must have names that can be compared: {error}"
        ) from error


def number_to_select(n_select: int | None, n: int, limits: Limits | None, *, repeats: bool) -> int:
    """Return how many of n to choose: as asked for, or one more than there are.

    Raises:
        InvalidInputError: If `n_select` is no count, or None where no budget ends the choice:
            with repeats a cheap candidate could be chosen without end.
    """
    if n_select is not None:
        return as_count("n_select", n_select, minimum=0)
    if repeats or limits is None or limits.budget is None:
        raise InvalidInputError(
            "`n_select` must be a whole number, got None; it may be left out only without repeats "
            "and with `costs` and `budget`"
        )
    return n + 1


def check_takes_limits(selector: Selector) -> None:
    """Refuse a selector whose `select` takes no budget and no groups.

    Raises:
        InvalidInputError: If so.
    """
    check_takes(
        selector,
        {"costs", "budget", "groups", "max_per_group"},
        "a limit on tokens or documents",
        ["ContextSelector", "SIFTSelector"],
    )


def check_takes(selector: Selector, names: set[str], what: str, able: Sequence[str]) -> None:
    """Refuse a selector whose `select` lacks some of the arguments that `what` needs.

    Raises:
        InvalidInputError: If so; it names those that are `able`.
    """
    lacking = names - inspect.signature(selector.select).parameters.keys()
    if lacking:
        whose = " and ".join(f"{name}'s" for name in able)
        raise InvalidInputError(
            f"{what} needs a selector whose `select` takes {', '.join(sorted(lacking))}, as "
            f"{whose} {'do' if len(able) > 1 else 'does'}; got {type(selector).__name__}"
        )
