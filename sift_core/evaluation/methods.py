"""What is compared: each method chooses positions of a pool, in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from sift_core.errors import InvalidInputError
from sift_core.evaluation.search import Pool
from sift_core.protocols import Selector
from sift_core.selection.baselines import MMRSelector
from sift_core.selection.context import ContextSelector
from sift_core.selection.sift import SIFTSelector
from sift_core.types import IntArray

Method: TypeAlias = Callable[[Pool, int], IntArray]
"""(pool, n) → up to n positions of the pool in order of choice, shape (m,), m <= n."""

MMR_WEIGHTS = (0.5, 0.7, 0.9)  # λ of MMR: 1 is relevance alone


def default_methods() -> dict[str, Method]:
    """Return the methods that need nothing but this library, under their names in the rows.

    "nn" are the nearest neighbours, "sift" is the default for context (`ContextSelector`),
    "sift_paper" the paper's SIFT with the linear kernel, without repeats; "mmr .7" is MMR with
    that weight on relevance.
    """
    return {
        "nn": nearest_neighbors,
        "sift": selected_by(ContextSelector()),
        "sift_paper": selected_by(SIFTSelector()),
        **{f"mmr {short(w)}": selected_by(MMRSelector(relevance_weight=w)) for w in MMR_WEIGHTS},
    }


def nearest_neighbors(pool: Pool, n: int) -> IntArray:
    """Return the n most similar, which a pool has first."""
    return np.arange(min(n, len(pool.rows)))


def selected_by(selector: Selector) -> Method:
    """Return the method that asks a selector."""
    return lambda pool, n: selector.select(pool.query, pool.embeddings, n).positions


def as_methods(methods: Mapping[str, Method | Selector]) -> dict[str, Method]:
    """Return the methods, with each selector turned into one.

    Raises:
        InvalidInputError: If there is none, or one is neither a selector nor callable.
    """
    if not methods:
        raise InvalidInputError("`methods` must have at least one method, got none")
    found: dict[str, Method] = {}
    for name, one in methods.items():
        if isinstance(one, Selector):
            found[name] = selected_by(one)
        elif callable(one):
            found[name] = one
        else:
            raise InvalidInputError(
                f"method {name!r} must be a Selector or a function (pool, n) → positions, got "
                f"{type(one).__name__}"
            )
    return found


def choose(name: str, method: Method, pool: Pool, n: int) -> IntArray:
    """Return what a method chooses, each position once, where it was chosen first.

    Raises:
        InvalidInputError: If it gives anything but at most n positions of the pool.
    """
    positions = np.asarray(method(pool, n))
    if positions.size == 0:
        return np.empty(0, dtype=np.intp)
    is_choice = (
        positions.ndim == 1
        and np.issubdtype(positions.dtype, np.integer)
        and len(positions) <= n
        and positions.min() >= 0
        and positions.max() < len(pool.rows)
    )
    if not is_choice:
        raise InvalidInputError(
            f"method {name!r} must choose at most {n} positions in [0, {len(pool.rows)}) as whole "
            f"numbers, got {positions.tolist()!r:.200}"
        )
    distinct: IntArray = np.array(list(dict.fromkeys(positions.tolist())), dtype=np.intp)
    return distinct


def short(number: float) -> str:
    """Return .7 for 0.7, as the tables have it."""
    return f"{number:g}".removeprefix("0")
