"""What the compiled loops choose: `_numba` behind the types of the core.

`GreedySelector` imports this where Numba is installed and falls back to NumPy where not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sift_core.selection import _numba
from sift_core.selection.greedy import GreedySelector, Problem, Turns, is_better
from sift_core.selection.limits import Limits, Tiers
from sift_core.selection.posterior import too_little_noise
from sift_core.types import FloatArray, IntArray, Selection

LARGEST_FACTOR = 2**27  # numbers: 1 GiB
_NO_MATRIX = np.empty((0, 0))
_NO_VECTOR = np.empty(0)
_NO_NUMBERS = np.empty(0, dtype=np.int64)


def can_read(targets: object, candidates: object, n_select: int) -> bool:
    """Tell whether these are arrays as compiled code takes them, and few enough for its factor.

    Anything else goes to NumPy, which lets the factor grow.
    """
    return (
        isinstance(targets, np.ndarray)
        and isinstance(candidates, np.ndarray)
        and targets.dtype in (np.float16, np.float32, np.float64)
        and candidates.dtype in (np.float32, np.float64)
        and targets.ndim == candidates.ndim == 2
        and targets.shape[1] == candidates.shape[1] > 1  # in one dimension all tie: NumPy is exact
        and len(targets) > 0
        and len(candidates) != 1  # `_columns` reads pairs
        and len(candidates) * n_select <= LARGEST_FACTOR
    )


def select_rows(
    settings: GreedySelector,
    targets: FloatArray,
    candidates: FloatArray,
    weights: FloatArray,
    n_select: int,
    *,
    decay: float,
    allow_repeats: bool,
    limits: Limits | None = None,
) -> Selection | None:
    """Return what `SIFTSelector.select` returns, or None where only NumPy can tell.

    Takes what `can_read`: `targets` (t, d), `candidates` (n, d), and `weights` (t,). `decay` is 0
    for the linear kernel, 1 / length_scale² for the RBF kernel.
    """
    rows = np.ascontiguousarray(candidates)
    points = np.ascontiguousarray(targets, dtype=np.float64)
    n, t = len(rows), len(points)
    lengths, point_lengths, covariance = np.empty(n), np.empty(t), np.empty((t, n))
    are_sound = _numba.fill_inverse_lengths(rows, lengths)
    if not (are_sound and _numba.fill_inverse_lengths(points, point_lengths)):
        return None
    for target in range(t):
        _numba.fill_column(
            rows, lengths, points[target], point_lengths[target], decay, covariance[target]
        )
    tiers = np.zeros(n, dtype=np.int8)
    return _greedy(
        settings,
        covariance,
        weights,
        tiers,
        n_select,
        decay,
        rows=rows,
        lengths=lengths,
        allow_repeats=allow_repeats,
        limits=limits,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class CompiledRows:
    """Candidates as they came, float32 or float64: no copy of unit length is made of them.

    Args:
        rows: Shape (n, d), C-contiguous, n other than 1.
        lengths: 1 / |row|, shape (n,).
        nearness: Cosines with the queries, shape (m, n).
    """

    rows: FloatArray
    lengths: FloatArray
    nearness: FloatArray

    @classmethod
    def of(cls, queries: FloatArray, candidates: FloatArray) -> CompiledRows | None:
        """Return what `can_read`, queries (m, d) and candidates (n, d); None as `select_rows`."""
        rows = np.ascontiguousarray(candidates)
        points = np.ascontiguousarray(queries, dtype=np.float64)
        n, m = len(rows), len(points)
        lengths, point_lengths, nearness = np.empty(n), np.empty(m), np.empty((m, n))
        are_sound = _numba.fill_inverse_lengths(rows, lengths)
        if not (are_sound and _numba.fill_inverse_lengths(points, point_lengths)):
            return None
        for point, length, column in zip(points, point_lengths, nearness, strict=True):
            _numba.fill_column(rows, lengths, point, length, 0.0, column)
        return cls(rows=rows, lengths=lengths, nearness=nearness)

    def take(self, order: IntArray) -> CompiledRows:
        """Return the rows at some positions, in that order."""
        rows, lengths, nearness = self.rows[order], self.lengths[order], self.nearness[:, order]
        return CompiledRows(rows=rows, lengths=lengths, nearness=nearness)

    def cosines(self, n: int) -> tuple[FloatArray, FloatArray]:
        """Return what `context._Rows.cosines` does."""
        n = min(n, len(self.rows))
        found, nearest = np.empty((n, n)), np.empty(n)
        _numba.fill_cosines(self.rows[:n], self.lengths[:n], found, nearest)
        return found, nearest

    def shown(self, n: int) -> None:
        """Return that nothing was shown before."""

    def choose(self, settings: GreedySelector, problem: Problem) -> Selection:
        """Return what `GreedySelector._chosen` returns."""
        kernel, targets = problem.kernel, problem.targets
        known: dict[str, Any]  # what the columns of the kernel are made of
        if len(problem.cosines) == len(self.rows):
            known = {"cosines": problem.cosines}
            covariance = kernel.of_cosines(problem.cosines[targets])
        else:
            known = {"rows": self.rows, "lengths": self.lengths}
            covariance = np.empty((len(targets), len(self.rows)))
            _numba.fill_covariance(self.rows, self.lengths, kernel.decay, targets, covariance)
        return _greedy(
            settings,
            covariance,
            problem.weights,
            problem.tiers,
            problem.n_select,
            kernel.decay,
            limits=problem.limits,
            turns=problem.turns,
            **known,
        )


def _greedy(
    settings: GreedySelector,
    covariance: FloatArray,
    weights: FloatArray,
    tiers: Tiers,
    n_select: int,
    decay: float,
    *,
    rows: FloatArray = _NO_MATRIX,
    lengths: FloatArray = _NO_VECTOR,
    cosines: FloatArray = _NO_MATRIX,
    allow_repeats: bool = False,
    limits: Limits | None = None,
    turns: Turns | None = None,
) -> Selection:
    """Return the choices of `GreedySelector._chosen` for a kernel with k(x, x) = 1.

    Args:
        settings: Noise variance and stops.
        covariance: k(target, x), shape (t, n), float64. Changed in place.
        weights: Shape (t,), float64.
        tiers: Shape (n,). Changed in place.
        n_select: How many to choose, >= 0.
        decay: As in `select_rows`.
        rows: Embeddings, shape (n, d), and
        lengths: 1 / |row|, shape (n,), float64; or instead
        cosines: Among the candidates, shape (n, n), float64.
        allow_repeats: Whether a candidate may be chosen again.
        limits: Within which to choose.
        turns: Whose region each choice is for; None for all.

    Raises:
        NumericalError: If λ is so small that the gains left the range of float64.
    """
    n = len(tiers)
    capacity = n_select if allow_repeats and n else min(n_select, n)

    def run(covariance: FloatArray, tiers: Tiers, first: int = -1) -> Selection:
        positions, variances, reason = _numba.greedy(
            rows,
            lengths,
            decay,
            cosines,
            covariance,
            weights,
            np.ones(n),
            tiers,
            float(weights @ np.ones(len(weights))),  # summed as NumPy's form does
            float(settings.noise_variance),
            min(n_select, capacity + 1),  # one too many shows that the pool is exhausted
            capacity,
            allow_repeats,
            0.0 if settings.alpha is None else float(settings.alpha),
            -1.0 if settings.max_variance is None else float(settings.max_variance),
            -1.0 if settings.min_gain is None else float(settings.min_gain),
            _NO_VECTOR if limits is None else limits.costs,
            _NO_VECTOR if limits is None else limits.prices,
            0.0 if limits is None else limits.spendable,
            _NO_NUMBERS if limits is None else limits.groups,
            _NO_NUMBERS if limits is None else limits.rooms(),
            first,
            _NO_MATRIX if turns is None else np.ascontiguousarray(turns.weights),
            _NO_NUMBERS if turns is None else turns.order,
        )
        if reason == _numba.OVERFLOW:
            raise too_little_noise(settings.noise_variance)
        return Selection(
            positions=positions, variances=variances, stop_reason=_numba.REASONS[reason]
        )

    if limits is None or n_select == 0:
        return run(covariance, tiers)
    gains = weights @ covariance**2 / (1.0 + settings.noise_variance)
    single = limits.best_single(gains, tiers)
    if single is None:
        return run(covariance, tiers)
    found = run(covariance.copy(), tiers.copy())
    return run(covariance, tiers, single) if is_better(gains[single], found) else found
