"""Limits of a choice: a budget for its costs, and a cap per group."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from sift_core.checks import as_count, as_number, check_instance, one_each, short_repr
from sift_core.errors import InvalidInputError
from sift_core.protocols import Selector
from sift_core.types import FloatArray, IntArray

Priorities: TypeAlias = np.ndarray[tuple[Any, ...], np.dtype[np.int8]]
CLOSED = 127  # the priority of a candidate that may not be chosen (again)
LARGEST_BUDGET = 2**53  # tokens: more than any texts have, and a float yet
LARGEST_RATIO = 1e12  # of two costs: gains over costs stay far from where float64 ends
COST_POWER = 0.5  # of a cost, that a gain is divided by: decision 0020
ROUNDING = 1e-12  # of a sum of costs, relative to the budget


@dataclass(frozen=True, kw_only=True, eq=False)
class Limits:
    """What the choices may cost together, and how many of one group may be among them.

    Args:
        costs: Cost of each candidate, shape (n,), > 0, in any unit, for example tokens. The
            highest is at most 1e12 times the lowest. Needs `budget`. Default: no budget.
        budget: What the choices may cost together, > 0, in the same unit. The next choice has the
            largest gain over √cost of those that still fit. The best single candidate goes first
            if it gains more than all of these (decision 0020 has the guarantee). Needs `costs`.
        groups: The group of each candidate, n names or numbers, for example of documents.
            Needs `max_per_group`. Default: no groups.
        max_per_group: How many of one group at most, >= 1. Needs `groups`.

    Raises:
        InvalidInputError: If one comes without the other. A selector refuses other values that it
            cannot use.

    Example:
        >>> limits = Limits(costs=[6, 6, 9, 6], budget=16)
        >>> select(query.embedding, pool.embeddings, limits=limits).positions.tolist()
        [0, 1]
    """

    costs: FloatArray | Sequence[float] | None = None
    budget: float | None = None
    groups: Sequence[Hashable] | IntArray | None = None
    max_per_group: int | None = None

    def __post_init__(self) -> None:
        for one, other in (("costs", "budget"), ("groups", "max_per_group")):
            given = [name for name in (one, other) if getattr(self, name) is not None]
            if len(given) == 1:
                absent = other if given == [one] else one
                raise InvalidInputError(
                    f"`{given[0]}` limits nothing without `{absent}`; pass both"
                )
            values = getattr(self, one)
            is_row = hasattr(values, "__getitem__") and getattr(values, "ndim", True)
            if values is not None and (not is_row or isinstance(values, Mapping)):
                raise InvalidInputError(
                    f"`{one}` must be a list of one value a candidate, got {short_repr(values)}"
                )

    def take(self, rows: IntArray) -> Limits:
        """Return the limits of the candidates at some positions, in that order."""
        places = rows.tolist()
        costs = None if self.costs is None else [self.costs[row] for row in places]
        groups = None if self.groups is None else [self.groups[row] for row in places]
        return replace(self, costs=costs, groups=groups)


@dataclass(frozen=True, kw_only=True, eq=False)
class CheckedLimits:
    """The limits of n candidates as the loops take them; made by `checked_limits`.

    Args:
        costs: Cost of each candidate, shape (n,), float64, in units of the highest.
        budget: What the choices may cost together, in the same unit, with room for the
            rounding of their sum. Infinite without a budget.
        groups: The group of each candidate by number, shape (n,), from 0. Empty without groups.
        rooms: How many may be chosen of each group, shape (g,). Empty without groups.
    """

    costs: FloatArray
    budget: float
    groups: IntArray
    rooms: IntArray

    def take(self, order: IntArray) -> CheckedLimits:
        """Return the limits of the candidates at some positions, in that order."""
        groups = self.groups[order] if len(self.groups) else self.groups
        return replace(self, costs=self.costs[order], groups=groups)

    def close(self, priorities: Priorities, left: float, rooms: IntArray) -> bool:
        """Close the candidates that no longer fit, in place; return whether there were any.

        Args:
            priorities: Shape (n,). Changed in place.
            left: What is left of the budget.
            rooms: What is left of `rooms`, shape (g,).
        """
        refused = self.costs > left
        if len(rooms):
            refused |= rooms[self.groups] == 0
        refused &= priorities < CLOSED
        priorities[refused] = CLOSED
        return bool(refused.any())

    @property
    def prices(self) -> FloatArray:
        """The square roots of the costs, shape (n,). Gains are divided by them."""
        prices: FloatArray = self.costs**COST_POWER
        return prices


def checked_limits(limits: Limits | None, n: int) -> CheckedLimits | None:
    """Check the limits of n candidates; return None if nothing is limited.

    Raises:
        InvalidInputError: If there are not n costs or groups, or a value is out of range.
    """
    if limits is not None:
        check_instance("limits", limits, Limits)
    if limits is None or (limits.costs is None and limits.groups is None):
        return None
    costs = np.ones(n) if limits.costs is None else one_each("costs", limits.costs, n, above=0)
    highest, budget = float(costs.max(initial=0.0)) or 1.0, np.inf
    if n and not costs.min() >= highest / LARGEST_RATIO:
        raise InvalidInputError(
            f"`costs` must be within a factor of {LARGEST_RATIO:g} of each other, got "
            f"{costs.min():g} to {highest:g}"
        )
    if limits.budget is not None:
        budget = as_number("budget", limits.budget, above=0) / highest * (1.0 + ROUNDING)
        budget = min(budget, sys.float_info.max)  # infinite is without a budget
    groups: IntArray = np.empty(0, dtype=np.int64)
    rooms: IntArray = np.empty(0, dtype=np.int64)
    if limits.groups is not None:
        groups = _numbered(limits.groups, n)
        room = as_count("max_per_group", limits.max_per_group, minimum=1)
        n_groups = len(set(groups.tolist()))
        rooms = np.full(n_groups, min(room, np.iinfo(np.int64).max), dtype=np.int64)
    return CheckedLimits(costs=costs / highest, budget=budget, groups=groups, rooms=rooms)


def _numbered(groups: Sequence[Hashable] | IntArray, n: int) -> IntArray:
    """Number the groups from 0 in order of appearance, shape (n,)."""
    if isinstance(groups, str):
        raise InvalidInputError("`groups` must have one name a candidate, got one text")
    numbers: dict[Hashable, int] = {}
    try:
        names = groups.tolist() if isinstance(groups, np.ndarray) else list(groups)
        found = [numbers.setdefault(name, len(numbers)) for name in names]
    except TypeError as error:  # a list has no hash, a number no length
        raise InvalidInputError(
            f"`groups` must have names that can be compared: {error}"
        ) from error
    if len(found) != n:
        raise InvalidInputError(
            f"`groups` must have one name a candidate: {n} candidate(s), {len(found)} name(s)"
        )
    return np.array(found, dtype=np.int64)


def number_to_select(
    n_select: int | None, n: int, limits: CheckedLimits | None, *, repeats: bool
) -> int:
    """Return `n_select` as an int; if it is None and a budget ends the choice, n + 1.

    Raises:
        InvalidInputError: If `n_select` is not a count. If it is None without a budget, or with
            repeats: a cheap candidate could be chosen again and again.
    """
    if n_select is not None:
        return as_count("n_select", n_select, minimum=0)
    if repeats or limits is None or np.isinf(limits.budget):
        raise InvalidInputError(
            "`n_select` must be a whole number, got None; it may be left out only without repeats "
            "and with limits that have `costs` and `budget`"
        )
    return n + 1


def takes(selector: Selector, name: str) -> bool:
    """Return whether the `select` of a selector takes an argument of this name."""
    return name in inspect.signature(selector.select).parameters
