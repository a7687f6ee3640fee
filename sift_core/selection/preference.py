"""What else is known of the candidates: which version to take, and how much each counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sift_core.checks import as_finite_array
from sift_core.errors import InvalidInputError
from sift_core.protocols import Selector
from sift_core.selection.limits import check_takes
from sift_core.types import FloatArray, IntArray


@dataclass(frozen=True, kw_only=True, eq=False)
class Preference:
    """See `preference_of` for the checked way to make one.

    Args:
        prefer: Of near-duplicates the highest stands for all, shape (n,); None for the most
            relevant.
        weight: What each counts, shape (n,), > 0; None for all alike.
    """

    prefer: FloatArray | None
    weight: FloatArray | None

    def take(self, order: IntArray) -> Preference:
        """Return what is known of the candidates at some positions, in that order."""
        return Preference(
            prefer=None if self.prefer is None else self.prefer[order],
            weight=None if self.weight is None else self.weight[order],
        )


def preference_of(
    n: int, *, prefer: FloatArray | None = None, weight: FloatArray | None = None
) -> Preference:
    """Return what is known of n candidates, checked.

    Raises:
        InvalidInputError: If there are not n numbers, one is not finite, or a weight not > 0.
    """
    if prefer is not None:
        prefer = _one_a_candidate("prefer", prefer, n)
    if weight is not None:
        weight = _one_a_candidate("weight", weight, n)
        if not (weight > 0).all():
            first = int(np.argmin(weight > 0))
            raise InvalidInputError(
                f"`weight` must be > 0, got {weight[first]:g} at {first}; leave out candidates "
                f"that are not to be chosen"
            )
    return Preference(prefer=prefer, weight=weight)


def _one_a_candidate(name: str, values: FloatArray, n: int) -> FloatArray:
    values = as_finite_array(name, values, n_dimensions=1).astype(np.float64)
    if len(values) != n:
        raise InvalidInputError(
            f"`{name}` must have one number a candidate: {n} candidate(s), {len(values)} number(s)"
        )
    return values


def check_takes_preference(selector: Selector) -> None:
    """Refuse a selector whose `select` takes no `prefer` and no `weight`.

    Raises:
        InvalidInputError: If so.
    """
    check_takes(
        selector, {"prefer", "weight"}, "the newest version, or recency,", ["ContextSelector"]
    )
