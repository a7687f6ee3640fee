"""Why two lists of choices differ: copies, activeft's approximation, rounding, or a fault."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.agreement_pools import Pool
from benchmarks.selection_rivals import ACTIVEFT_MINI_BATCH

TIE = 1e-12  # relative difference of exact gains below which float64 cannot tell them apart

SAME = "same"
COPIES = "copies: activeft takes any of equal vectors"
HALVES = "K > 1000: activeft chooses from random halves"
FLOAT32 = "float32: activeft chooses the same in float64"
TIED = "tie: exact gains equal to 1e-12"
THEIRS = "unexplained: activeft's choice gains less"
OURS = "unexplained: our choice gains less"

Select = Callable[..., list[int]]  # (pool, *, in_halves, in_float64) → positions


def first_difference(ours: Sequence[int], theirs: Sequence[int]) -> int | None:
    """Return the first step at which two lists differ, also in length; None if nowhere."""
    for step, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        if a != b:
            return step
    return None if len(ours) == len(theirs) else min(len(ours), len(theirs))


def without_copies(positions: Sequence[int], rows: np.ndarray) -> list[int]:
    """Return the positions with each replaced by the first equal row's."""
    first: dict[bytes, int] = {}
    originals = [first.setdefault(row.tobytes(), i) for i, row in enumerate(rows + 0.0)]
    return [originals[position] for position in positions]


def exact_gain(pool: Pool, chosen: Sequence[int], position: int) -> float:
    """Return the dense float64 gain of one choice after others: k_n(q,x)² / (k_n(x,x) + λ)."""
    rows = pool.rows.astype(np.float64)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    query = pool.query.astype(np.float64)
    query /= np.linalg.norm(query)
    before, x = rows[list(chosen)], rows[position]
    prior = before @ before.T + pool.noise_variance * np.eye(len(before))
    weights = np.linalg.solve(prior, before @ x)
    covariance = query @ x - (before @ query) @ weights
    variance = x @ x - (before @ x) @ weights
    return float(covariance**2 / (variance + pool.noise_variance))


def cause(pool: Pool, ours: Sequence[int], theirs: Sequence[int], activeft: Select) -> str:
    """Return why two lists differ, or `SAME`.

    Copies count as one vector; then activeft is asked again without its random halves, then in
    float64; what remains is decided by the exact gains at the first difference.
    """
    if list(ours) == list(theirs):
        return SAME
    mine = without_copies(ours, pool.rows)
    if mine == without_copies(theirs, pool.rows):
        return COPIES
    if len(pool.rows) > ACTIVEFT_MINI_BATCH and mine == _again(pool, activeft, in_float64=False):
        return HALVES
    if mine == _again(pool, activeft, in_float64=True):
        return FLOAT32
    gap = gap_at_first_difference(pool, ours, theirs)
    if abs(gap) <= TIE:
        return TIED
    return THEIRS if gap > 0 else OURS


def _again(pool: Pool, activeft: Select, *, in_float64: bool) -> list[int]:
    positions = activeft(pool, in_halves=False, in_float64=in_float64)
    return without_copies(positions, pool.rows)


def gap_at_first_difference(pool: Pool, ours: Sequence[int], theirs: Sequence[int]) -> float:
    """Return how much more our choice gains, relative to the larger, where lists part; else 0."""
    mine, others = (without_copies(positions, pool.rows) for positions in (ours, theirs))
    step = first_difference(mine, others)
    if step is None or step >= min(len(mine), len(others)):
        return 0.0
    a, b = (exact_gain(pool, mine[:step], positions[step]) for positions in (mine, others))
    return (a - b) / max(a, b)
