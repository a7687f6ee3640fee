"""Limits of a choice: a budget for its costs, and a cap per group."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from sift_core.checks import as_count, as_finite_array, as_number
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
    """A budget, a cap per group, or both. `limits_of` makes and checks them.

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

    def take(self, order: IntArray) -> Limits:
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


def limits_of(
    n: int,
    *,
    costs: FloatArray | None = None,
    budget: float | None = None,
    groups: Sequence[Hashable] | IntArray | None = None,
    max_per_group: int | None = None,
) -> Limits | None:
    """Check the limits of n candidates; return None if nothing is limited.

    Args:
        n: How many candidates there are.
        costs: Cost of each candidate, shape (n,), > 0, in any unit, for instance tokens. The
            highest is at most 1e12 times the lowest. Needs `budget`. Default: no budget.
        budget: What the choices may cost together, > 0, in the same unit. Needs `costs`.
        groups: The group of each candidate, n names or numbers, for instance of documents.
            Needs `max_per_group`. Default: no groups.
        max_per_group: How many of one group may be chosen, >= 1. Needs `groups`.

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
    checked = np.ones(n) if costs is None else one_each("costs", costs, n, above=0)
    highest, spendable = float(checked.max(initial=0.0)) or 1.0, np.inf
    if n and not checked.min() >= highest / LARGEST_RATIO:
        raise InvalidInputError(
            f"`costs` must be within a factor of {LARGEST_RATIO:g} of each other, got "
            f"{checked.min():g} to {highest:g}"
        )
    if budget is not None:
        spendable = as_number("budget", budget, above=0) / highest * (1.0 + ROUNDING)
        spendable = min(spendable, sys.float_info.max)  # infinite is without a budget
    numbers: IntArray = np.empty(0, dtype=np.int64)
    rooms: IntArray = np.empty(0, dtype=np.int64)
    if groups is not None:
        numbers = _numbered(groups, n)
        room = min(as_count("max_per_group", max_per_group, minimum=1), np.iinfo(np.int64).max)
        rooms = np.full(len(set(numbers.tolist())), room, dtype=np.int64)
    return Limits(costs=checked / highest, budget=spendable, groups=numbers, rooms=rooms)


def one_each(
    name: str, values: FloatArray, n: int, *, above: float = -np.inf, advice: str = ""
) -> FloatArray:
    """Return one finite number a candidate, shape (n,), as a new float64 array.

    Raises:
        InvalidInputError: If there are not n numbers, or one is not finite or not `above`. The
            message on the last ends with `advice`.
    """
    values = as_finite_array(name, values, n_dimensions=1).astype(np.float64)
    if len(values) != n:
        raise InvalidInputError(
            f"`{name}` must have one number a candidate: {n} candidate(s), {len(values)} number(s)"
        )
    if not (values > above).all():
        first = int(np.argmin(values > above))
        raise InvalidInputError(
            f"`{name}` must be > {above:g}, got {values[first]:g} at {first}{advice}"
        )
    return values


def _numbered(groups: Sequence[Hashable] | IntArray, n: int) -> IntArray:
    """Number the groups from 0 in order of appearance, shape (n,)."""
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
            "and with `costs` and `budget`"
        )
    return n + 1


def check_takes_limits(selector: Selector) -> None:
    """Check that the `select` of a selector takes a budget and groups.

    Raises:
        InvalidInputError: If it does not.
    """
    names = {"costs", "budget", "groups", "max_per_group"}
    able = "ContextSelector's and SIFTSelector's do"
    _check_takes(selector, names, "a limit on tokens or documents", able)


def check_takes_preference(selector: Selector) -> None:
    """Check that the `select` of a selector takes `prefer` and `weight`.

    Raises:
        InvalidInputError: If it does not.
    """
    able = "ContextSelector's does"
    _check_takes(selector, {"prefer", "weight"}, "the newest version, or recency,", able)


def takes_target_weights(selector: Selector) -> bool:
    """Return whether the `select` of a selector takes `target_weights`; ContextSelector's does."""
    return "target_weights" in inspect.signature(selector.select).parameters


def _check_takes(selector: Selector, names: set[str], what: str, able: str) -> None:
    lacking = names - inspect.signature(selector.select).parameters.keys()
    if lacking:
        raise InvalidInputError(
            f"{what} needs a selector whose `select` takes {', '.join(sorted(lacking))}, as "
            f"{able}; got {type(selector).__name__}"
        )
