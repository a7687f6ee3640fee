"""The greedy loop compiled by Numba: the same choices as the NumPy form, several times faster.

Embeddings are read in the precision they come in and multiplied in float64, where the product
of two float32 numbers is exact: no copy in float64 is made, and none is needed for its answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sift_core.errors import MissingDependencyError
from sift_core.selection.greedy import CHOSEN, TIE_TOLERANCE, GreedySelector, Tiers
from sift_core.selection.kernels import LARGEST_SQUARE, SMALLEST_SQUARE, RBFKernel
from sift_core.selection.posterior import kernel_matrix, too_little_noise
from sift_core.types import FloatArray, IntArray, Selection, StopReason

try:
    import numba
except ImportError as error:
    raise MissingDependencyError("numba", extra="fast") from error

REASONS = tuple(StopReason)
N_SELECT, POOL_EXHAUSTED, ALPHA, MAX_VARIANCE, MIN_GAIN = range(len(REASONS))  # as in the enum
OVERFLOW = len(REASONS)  # in place of a reason: the gains left the range of float64
LARGEST_FACTOR = 2**27  # numbers: 1 GiB
BLOCK = 4  # columns computed at a time
TILE = 1024  # candidates updated at a time, so that their column stays in the L1 cache
_NO_MATRIX = np.empty((0, 0))
_NO_VECTOR = np.empty(0)

# Inner products may be summed in any order, which is what lets them run in vector registers. All
# other arithmetic is as written, so that copies of a vector stay equal wherever they stand.
_REORDERED = {"reassoc", "contract", "nsz"}


def _jit(fastmath: set[str] | bool = False, *, inline: str = "never") -> Callable[[Any], Any]:
    def compile_lazily(function: Any) -> Any:
        options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
        options |= {"fastmath": fastmath, "inline": inline}
        try:
            return numba.njit(cache=True, **options)(function)
        except RuntimeError:  # no folder to keep compiled code in
            return numba.njit(**options)(function)

    return compile_lazily


@_jit(_REORDERED)
def _inverse_lengths(rows, lengths):
    """Fill 1 / |row|; return whether every row has a length that can be trusted."""
    for i in range(rows.shape[0]):
        square = 0.0
        for k in range(rows.shape[1]):
            value = np.float64(rows[i, k])
            square += value * value
        if not (SMALLEST_SQUARE < square < LARGEST_SQUARE):  # NaN too
            return False
        lengths[i] = 1.0 / np.sqrt(square)
    return True


@_jit(_REORDERED)
def _products(rows, point, out):
    """Fill the inner products of all rows with one point."""
    for i in range(rows.shape[0]):
        product = 0.0
        for k in range(rows.shape[1]):
            product += np.float64(rows[i, k]) * np.float64(point[k])
        out[i] = product


@_jit()
def _column(rows, lengths, point, scale, decay, out):
    """Fill k(row, point) for unit vectors; `decay` is 0 for the linear kernel."""
    _products(rows, point, out)
    _apply_kernel(lengths, scale, decay, out)


@_jit()
def _apply_kernel(lengths, scale, decay, values):
    """Turn inner products into kernel values."""
    for i in range(values.shape[0]):
        values[i] *= lengths[i] * scale
    if decay > 0.0:
        for i in range(values.shape[0]):
            values[i] = np.exp((min(values[i], 1.0) - 1.0) * decay)


@_jit(_REORDERED)
def _pair_products(rows, points, out):
    """Fill the inner products (4, n) of an even number of rows, read once, with four points."""
    p0, p1, p2, p3 = points[0], points[1], points[2], points[3]
    for i in range(0, rows.shape[0] - 1, 2):
        a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = 0.0
        for k in range(rows.shape[1]):
            a, b = np.float64(rows[i, k]), np.float64(rows[i + 1, k])
            a0 += a * p0[k]
            a1 += a * p1[k]
            a2 += a * p2[k]
            a3 += a * p3[k]
            b0 += b * p0[k]
            b1 += b * p1[k]
            b2 += b * p2[k]
            b3 += b * p3[k]
        out[0, i], out[1, i], out[2, i], out[3, i] = a0, a1, a2, a3
        out[0, i + 1], out[1, i + 1], out[2, i + 1], out[3, i + 1] = b0, b1, b2, b3


@_jit()
def _columns(rows, lengths, points, scales, decay, out):
    """Fill k(row, point) for four points at once; `out` is (4, n), n >= 2.

    Every row is summed in the same order, the last of an odd number too, so that copies tie.
    """
    n = rows.shape[0]
    _pair_products(rows, points, out)
    if n % 2 == 1:
        last = np.empty((BLOCK, 2))
        _pair_products(rows[n - 2 :], points, last)
        out[:, n - 1] = last[:, 1]
    for j in range(BLOCK):
        _apply_kernel(lengths, scales[j], decay, out[j])


@_jit()
def _fill_columns(rows, lengths, decay, best, gains, slots, columns, n_columns, points, scales):
    """Compute the column of `best` and of the three runners-up that have none yet.

    A runner-up is likely to be chosen within a few steps: of 50 choices among 200 chunks of
    text, 18 need this call (benchmarks/LOG.md). Returns the number of columns filled so far.
    """
    for j in range(BLOCK):
        x = best
        if j > 0:
            largest = -1.0
            for i in range(rows.shape[0]):
                if slots[i] < 0 and gains[i] > largest:
                    largest = gains[i]
                    x = i
        slots[x] = n_columns + j
        scales[j] = lengths[x]
        points[j] = rows[x]
    _columns(rows, lengths, points, scales, decay, columns[n_columns : n_columns + BLOCK])
    return n_columns + BLOCK


# The steps of `_greedy` are put into it before it is compiled, which takes no longer than one loop.


@_jit(inline="always")
def _fill_gains(covariance, weights, diagonal, noise, gains):
    """Fill Σ w k(t, x)² / (k(x, x) + λ), the gain of each candidate (n,)."""
    gains[:] = 0.0
    for target in range(weights.shape[0]):
        weight = weights[target]
        for x in range(gains.shape[0]):
            gains[x] += weight * covariance[target, x] * covariance[target, x]
    for x in range(gains.shape[0]):
        gains[x] /= diagonal[x] + noise


@_jit(inline="always")
def _first_largest(gains, tiers, tier):
    """Return the lowest position of a tier whose gain is the largest, up to rounding.

    -1 if a gain of the tier is not finite.
    """
    largest = -np.inf
    for x in range(gains.shape[0]):
        value = gains[x]
        if tiers[x] == tier and (value > largest or value != value):  # NaN stays
            largest = value
    if not np.isfinite(largest):
        return -1
    enough = largest - abs(largest) * TIE_TOLERANCE
    for x in range(gains.shape[0]):
        if tiers[x] == tier and gains[x] >= enough:
            return x
    return -1


@_jit(inline="always")
def _observe(best, step, column, noise, factor, covariance, diagonal, weights, loads):
    """Condition on a noisy look at `best`; return by how much the weighted variance falls.

    `column` (n,) is its prior covariance with each candidate. Fills row `step` of `factor` and
    changes `covariance` (t, n) and `diagonal` (n,), as `Posterior.observe`.
    """
    n, t = diagonal.shape[0], weights.shape[0]
    scale = np.sqrt(diagonal[best] + noise)
    drop = 0.0
    for target in range(t):
        loads[target] = covariance[target, best] / scale
        drop += weights[target] * loads[target] * loads[target]
    for low in range(0, n, TILE):
        part = column[low : low + TILE]
        for j in range(step):
            load = factor[j, best]
            row = factor[j, low : low + TILE]
            for x in range(part.shape[0]):
                part[x] -= load * row[x]
    for x in range(n):
        value = column[x] / scale
        factor[step, x] = value
        diagonal[x] = max(diagonal[x] - value * value, 0.0)
    for target in range(t):
        load = loads[target]
        for x in range(n):
            covariance[target, x] -= load * factor[step, x]
    return drop


@_jit()
def _greedy(
    rows,
    lengths,
    decay,
    cosines,
    covariance,
    weights,
    diagonal,
    tiers,
    variance,
    noise,
    n_select,
    capacity,
    repeats,
    alpha,
    max_variance,
    min_gain,
):
    """Return positions, variances and the number of the stop reason.

    Columns come from `cosines` (n, n) where it has rows, else from `rows` (n, d). At most
    `capacity` of the `n_select` steps can be taken. Changes `covariance` (t, n), `diagonal`
    (n,) and `tiers` (n,).
    """
    n = diagonal.shape[0]
    factor = np.empty((capacity, n))
    positions = np.empty(capacity, np.int64)
    variances = np.empty(capacity + 1)
    slots = np.full(n, -1, np.int64)
    columns = np.empty((min(rows.shape[0], capacity) * BLOCK, n))
    points = np.empty((BLOCK, rows.shape[1]))
    scales = np.empty(BLOCK)
    n_columns = 0
    ones = np.ones(n)
    gains = np.empty(n)
    column = np.empty(n)
    loads = np.empty(weights.shape[0])
    variances[0] = variance
    reason = N_SELECT
    step = 0
    while step < n_select:
        if variances[step] <= max_variance:
            reason = MAX_VARIANCE
            break
        tier = CHOSEN
        for x in range(n):
            tier = min(tier, tiers[x])
        if tier == CHOSEN:
            reason = POOL_EXHAUSTED
            break
        _fill_gains(covariance, weights, diagonal, noise, gains)
        best = _first_largest(gains, tiers, tier)
        if best < 0:
            reason = OVERFLOW
            break
        if gains[best] < min_gain:
            reason = MIN_GAIN
            break
        deviation = np.sqrt(max(variances[step] - gains[best], 0.0))
        if alpha > 0.0 and deviation > 1.0 / (alpha * (step + 1)):
            reason = ALPHA
            break
        if not repeats:
            tiers[best] = CHOSEN
        if cosines.shape[0] > 0:
            column[:] = cosines[best]
            _apply_kernel(ones, 1.0, decay, column)
        else:
            if slots[best] < 0:
                n_columns = _fill_columns(
                    rows, lengths, decay, best, gains, slots, columns, n_columns, points, scales
                )
            column[:] = columns[slots[best]]
        drop = _observe(best, step, column, noise, factor, covariance, diagonal, weights, loads)
        positions[step] = best
        step += 1
        variances[step] = max(variances[step - 1] - drop, 0.0)
    return positions[:step], variances[: step + 1], reason


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
) -> Selection | None:
    """Return what `SIFTSelector.select` returns, or None where only NumPy can tell.

    Takes what `can_read`: `targets` (t, d), `candidates` (n, d), and `weights` (t,). `decay` is 0
    for the linear kernel, 1 / length_scale² for the RBF kernel.
    """
    rows = np.ascontiguousarray(candidates)
    points = np.ascontiguousarray(targets, dtype=np.float64)
    n, t = len(rows), len(points)
    lengths, point_lengths = np.empty(n), np.empty(t)
    if not (_inverse_lengths(rows, lengths) and _inverse_lengths(points, point_lengths)):
        return None
    covariance = np.empty((t, n))
    for target in range(t):
        _column(rows, lengths, points[target], point_lengths[target], decay, covariance[target])
    tiers = np.zeros(n, dtype=np.int8)
    return greedy(
        settings,
        covariance,
        weights,
        tiers,
        n_select,
        rows,
        lengths,
        decay,
        allow_repeats=allow_repeats,
    )


def select_targets(
    settings: GreedySelector,
    kernel: RBFKernel,
    rows: FloatArray,
    cosines: FloatArray | None,
    targets: IntArray,
    weights: FloatArray,
    tiers: Tiers,
    n_select: int,
) -> Selection:
    """Return what `GreedySelector._choose` returns where some candidates are the targets.

    `rows` are unit vectors (n, d) in float64, `cosines` (n, n) those among them if they are at
    hand, `targets` positions (t,) with `weights` (t,). `tiers` (n,) is changed in place.
    """
    if cosines is not None:
        rows, lengths = _NO_MATRIX, _NO_VECTOR
        covariance = kernel.of_cosines(cosines[targets])
    else:
        lengths = np.ones(len(rows))
        covariance = kernel_matrix(kernel, rows, rows[targets])
    return greedy(
        settings, covariance, weights, tiers, n_select, rows, lengths, kernel.decay, cosines=cosines
    )


def greedy(
    settings: GreedySelector,
    covariance: FloatArray,
    weights: FloatArray,
    tiers: Tiers,
    n_select: int,
    rows: FloatArray,
    lengths: FloatArray,
    decay: float,
    *,
    cosines: FloatArray | None = None,
    allow_repeats: bool = False,
) -> Selection:
    """Return the choices of `GreedySelector._choose` for a kernel with k(x, x) = 1.

    Args:
        settings: Noise variance and stops.
        covariance: k(target, x), shape (t, n), float64. Changed in place.
        weights: Shape (t,), float64.
        tiers: Shape (n,). Changed in place.
        n_select: How many to choose, >= 0.
        rows: Embeddings, shape (n, d); none where `cosines` are given.
        lengths: 1 / |row|, shape (n,); likewise.
        decay: As in `select_rows`.
        cosines: Among the candidates, shape (n, n), float64.
        allow_repeats: Whether a candidate may be chosen again.

    Raises:
        NumericalError: If λ is so small that the gains left the range of float64.
    """
    n = len(tiers)
    capacity = n_select if allow_repeats and n else min(n_select, n)
    positions, variances, reason = _greedy(
        rows,
        lengths,
        decay,
        _NO_MATRIX if cosines is None else cosines,
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
    )
    if reason == OVERFLOW:
        raise too_little_noise(settings.noise_variance)
    return Selection(positions=positions, variances=variances, stop_reason=REASONS[reason])
