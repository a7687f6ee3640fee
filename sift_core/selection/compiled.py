"""The choices of the compiled loops: `_numba` behind the types of the core.

`backend.compiled_for` imports this. Without Numba the import fails, and NumPy chooses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sift_core.selection import _numba
from sift_core.selection.context import UnitRows
from sift_core.selection.greedy import Rules, Stops, better_alone, without_poor
from sift_core.selection.kernels import LinearKernel, RBFKernel
from sift_core.selection.posterior import too_little_noise
from sift_core.types import FloatArray, IntArray, Selection

LARGEST_FACTOR = 2**27  # numbers: 1 GiB
_ROW_TYPES = {np.dtype(np.float32), np.dtype(np.float64)}
_QUERY_TYPES = {np.dtype(np.float16), *_ROW_TYPES}
_NO_MATRIX, _NO_VECTOR, _NO_NUMBERS = np.empty((0, 0)), np.empty(0), np.empty(0, dtype=np.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class CompiledRows(UnitRows):
    """The candidates as they came, float32 or float64: no copy of unit length is made of them.

    Args:
        rows: Shape (n, d), C-contiguous, n other than 1.
        nearness: Cosines with the queries, shape (m, n).
        lengths: 1 / |row|, shape (n,).
    """

    lengths: FloatArray

    def take(self, order: IntArray) -> CompiledRows:
        """Return the rows at some positions, in that order."""
        rows, lengths, nearness = self.rows[order], self.lengths[order], self.nearness[:, order]
        return CompiledRows(rows=rows, lengths=lengths, nearness=nearness)

    def cosines(self, n: int) -> tuple[FloatArray, FloatArray]:
        """Return what `UnitRows.cosines` does."""
        n = min(n, len(self.rows))
        found, nearest = np.empty((n, n)), np.empty(n)
        _numba.fill_cosines(self.rows[:n], self.lengths[:n], found, nearest)
        return found, nearest

    def choose(
        self,
        selector: Stops,
        kernel: RBFKernel,
        cosines: FloatArray,
        targets: IntArray,
        weights: FloatArray,
        rules: Rules,
    ) -> Selection:
        """Return what `UnitRows.choose` does."""
        if len(cosines) == len(self.rows):
            covariance = kernel.of_cosines(cosines[targets])
            return self._choose(selector, kernel.decay, covariance, weights, rules, cosines)
        covariance = np.empty((len(targets), len(self.rows)))
        _numba.fill_covariance(self.rows, self.lengths, kernel.decay, targets, covariance)
        return self._choose(selector, kernel.decay, covariance, weights, rules)

    def choose_for_queries(
        self, selector: Stops, kernel: LinearKernel | RBFKernel, weights: FloatArray, rules: Rules
    ) -> Selection:
        """Return the choices for the queries themselves; `weights` are theirs, shape (m,)."""
        if isinstance(kernel, LinearKernel):
            return self._choose(selector, 0.0, self.nearness, weights, rules)
        covariance = kernel.of_cosines(self.nearness)
        return self._choose(selector, kernel.decay, covariance, weights, rules)

    def _choose(
        self,
        selector: Stops,
        decay: float,
        covariance: FloatArray,
        weights: FloatArray,
        rules: Rules,
        cosines: FloatArray | None = None,
    ) -> Selection:
        """Return the choices of `GreedySelector._chosen` for a kernel with k(x, x) = 1.

        Args:
            selector: Its noise variance and stops.
            decay: As in `_numba.Settings`.
            covariance: k(target, x), shape (t, n), float64. Changed in place.
            weights: Shape (t,), float64.
            rules: What the choice must obey.
            cosines: Among the candidates, shape (n, n), float64. None to compute columns of the
                kernel when they are needed.

        Raises:
            NumericalError: If λ is so small that the gains left the range of float64.
        """
        n, limits, steps = len(self.rows), rules.limits, rules.step_weights
        noise = float(selector.noise_variance)
        capacity = rules.n_select if rules.allow_repeats and n else min(rules.n_select, n)

        def run(covariance: FloatArray, first: int = -1) -> Selection:
            pool = _numba.Pool(
                lengths=self.lengths,
                cosines=_NO_MATRIX if cosines is None else cosines,
                covariance=covariance,
                weights=weights,
                priorities=rules.priorities.copy(),
                step_weights=_NO_MATRIX if steps is None else np.ascontiguousarray(steps),
                costs=_NO_VECTOR if limits is None else limits.costs,
                prices=_NO_VECTOR if limits is None else limits.prices,
                groups=_NO_NUMBERS if limits is None else limits.groups,
                rooms=_NO_NUMBERS if limits is None else limits.rooms.copy(),
            )
            settings = _numba.Settings(
                decay=decay,
                noise=noise,
                variance=float(weights.sum()),
                alpha=float(selector.alpha or -1.0),
                max_variance=float(selector.max_variance or -1.0),
                min_gain=float(selector.min_gain or -1.0),
                budget=0.0 if limits is None else limits.budget,
                n_select=min(rules.n_select, capacity + 1),  # one too many shows an exhausted pool
                capacity=capacity,
                first=first,
                allow_repeats=bool(rules.allow_repeats),
            )
            positions, variances, reason = _numba.greedy(self.rows, pool, settings)
            if reason == _numba.OVERFLOW:
                raise too_little_noise(noise)
            stop_reason = _numba.REASONS[reason]
            return Selection(positions=positions, variances=variances, stop_reason=stop_reason)

        if limits is None:
            return run(covariance)
        gains = weights @ covariance**2 / (1.0 + noise)
        limits = without_poor(gains, limits)
        found = run(covariance.copy())
        single = better_alone(limits, gains, rules.priorities, found)
        return found if single is None else run(covariance, single)


def read(queries: object, candidates: object, n_select: int) -> CompiledRows | None:
    """Return the candidates (n, d) and their cosines with the queries (m, d), for compiled code.

    Return None if NumPy is to choose. Compiled code needs arrays of floats whose shapes fit, two
    dimensions, other than one candidate, and vectors whose squared lengths keep their digits. Its
    memory is n · `n_select` numbers from the start, at most `LARGEST_FACTOR`.
    """
    if not (
        isinstance(queries, np.ndarray)
        and isinstance(candidates, np.ndarray)
        and queries.dtype in _QUERY_TYPES
        and candidates.dtype in _ROW_TYPES
        and queries.ndim == candidates.ndim == 2
        and queries.shape[1] == candidates.shape[1] > 1  # in one dimension all tie: NumPy is exact
        and len(queries) > 0
        and len(candidates) != 1  # columns are computed in pairs
        and len(candidates) * n_select <= LARGEST_FACTOR
    ):
        return None
    rows = np.ascontiguousarray(candidates)
    points = np.ascontiguousarray(queries, dtype=np.float64)
    n, m = len(rows), len(points)
    lengths, point_lengths, nearness = np.empty(n), np.empty(m), np.empty((m, n))
    are_sound = _numba.fill_inverse_lengths(rows, lengths)
    if not (are_sound and _numba.fill_inverse_lengths(points, point_lengths)):
        return None
    for point, length, cosines in zip(points, point_lengths, nearness, strict=True):
        _numba.fill_cosines_with(rows, lengths, point, length, cosines)
    return CompiledRows(rows=rows, lengths=lengths, nearness=nearness)
