"""Loops compiled by Numba: products, the kernel and the greedy choice. `compiled` calls them.

Embeddings are read in the precision they come in and multiplied in float64, where the product
of two float32 numbers is exact: no copy in float64 is made, and none is needed for its answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from sift_core.errors import MissingDependencyError
from sift_core.selection.greedy import TIE_TOLERANCE
from sift_core.selection.kernels import COARSE, LARGEST_SQUARE, SMALLEST_SQUARE
from sift_core.selection.limits import CLOSED
from sift_core.types import StopReason

try:
    import numba
except ImportError as error:
    raise MissingDependencyError("numba", extra="fast") from error

REASONS = tuple(StopReason)
N_SELECT, POOL_EXHAUSTED, ALPHA, MAX_VARIANCE, MIN_GAIN, LIMITS = range(len(StopReason))
OVERFLOW = len(REASONS)  # in place of a reason: the gains left the range of float64
AHEAD = 2  # columns computed at a time: more are seldom chosen, fewer read the rows too often
TILE = 1024  # candidates updated at a time, so that their column stays in the L1 cache

# Inner products may be summed in any order, which is what lets them run in vector registers. All
# other arithmetic is as written, so that copies of a vector stay equal wherever they stand.
_REORDERED = {"reassoc", "contract", "nsz"}

# The functions that `compiled` calls are compiled for these types at import. Otherwise each kind of
# array would be compiled when it first comes, in seconds, a read-only one too.
_INT, _FLOAT = numba.int64, numba.float64
_VECTOR = numba.types.Array(_FLOAT, 1, "C", readonly=True)
_NUMBERS = numba.types.Array(_INT, 1, "C", readonly=True)
_ROWS = [numba.types.Array(each, 2, "C", readonly=True) for each in (numba.float32, _FLOAT)]
_FILLED, _FILLED_ROWS, _COUNTS = _FLOAT[::1], _FLOAT[:, ::1], _INT[::1]


class Pool(NamedTuple):
    """The arrays of a choice among n candidates for t targets. Numba demands writable ones."""

    lengths: Any  # (n,), 1 / |row|
    cosines: Any  # (n, n) among the candidates; (0, 0) to compute columns from the rows
    covariance: Any  # (t, n), k(target, x); changed
    weights: Any  # (t,)
    priorities: Any  # (n,), int8, as in `greedy.Rules`; changed
    step_weights: Any  # (k, t), as in `greedy.Rules`; (0, 0) for `weights` at each step
    costs: Any  # (n,), as in `limits.Limits`; (0,) without limits
    prices: Any  # (n,)
    groups: Any  # (n,), int64; (0,) without groups
    rooms: Any  # (g,), int64; changed


class Settings(NamedTuple):
    """The numbers of a choice. A stop of -1 never stops."""

    decay: Any  # 1 / length_scale² of the RBF kernel; 0 for the linear one
    noise: Any  # λ
    variance: Any  # before the first choice
    alpha: Any
    max_variance: Any
    min_gain: Any
    budget: Any
    n_select: Any
    capacity: Any  # how many of the `n_select` choices can be made
    first: Any  # the first choice; -1 for the best
    allow_repeats: Any


_ARRAYS = [_FILLED, _FILLED_ROWS, _FILLED_ROWS, _FILLED, numba.int8[::1], _FILLED_ROWS]
_POOL = numba.types.NamedTuple([*_ARRAYS, _FILLED, _FILLED, _COUNTS, _COUNTS], Pool)
_SETTINGS = numba.types.NamedTuple([_FLOAT] * 7 + [_INT] * 3 + [numba.boolean], Settings)


def _jit(
    fastmath: set[str] | bool = False,
    *,
    inline: str = "never",
    types: list[tuple[Any, ...]] | None = None,
) -> Callable[[Any], Any]:
    """Compile for these types of arguments now, or for those of each call if there are none."""

    def compile_for(function: Any) -> Any:
        options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
        options |= {"fastmath": fastmath, "inline": inline}
        try:
            return numba.njit(types, cache=True, **options)(function)
        except (RuntimeError, OSError):  # no folder to keep compiled code in, or no room
            return numba.njit(types, **options)(function)

    return compile_for


@_jit(_REORDERED, types=[(rows, _FILLED) for rows in _ROWS])
def fill_inverse_lengths(rows, lengths):
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


@_jit()
def _apply_kernel(lengths, scale, decay, values):
    """Turn inner products (n,) into kernel values; `decay` is 0 for the linear kernel."""
    for i in range(values.shape[0]):
        values[i] *= lengths[i] * scale
    if decay > 0.0:
        for i in range(values.shape[0]):
            values[i] = np.exp(((min(values[i], 1.0) + COARSE) - (COARSE + 1.0)) * decay)


@_jit(_REORDERED, types=[(rows, _VECTOR, _VECTOR, _FLOAT, _FILLED) for rows in _ROWS])
def fill_cosines_with(rows, lengths, point, length, out):
    """Fill the cosines (n,) of all rows with one point; `lengths` and `length` are 1 / |·|."""
    for i in range(rows.shape[0]):
        product = 0.0
        for k in range(rows.shape[1]):
            product += np.float64(rows[i, k]) * point[k]
        out[i] = product * (lengths[i] * length)


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


@_jit(types=[(rows, _VECTOR, _FILLED_ROWS, _FILLED) for rows in _ROWS])
def fill_cosines(rows, lengths, out, nearest):
    """Fill the cosines (n, n) among n >= 2 rows, and the largest with an earlier row (n,).

    `lengths` are 1 / |row|. The first row has no earlier one: -inf.
    """
    n = rows.shape[0]
    points, products, last = np.zeros((4, rows.shape[1])), np.empty((4, n)), np.empty((4, 2))
    for low in range(0, n, 4):
        high = min(low + 4, n)
        points[: high - low] = rows[low:high]
        _pair_products(rows[:high], points, products)
        if high % 2 == 1:  # summed in the same order, so that copies tie
            _pair_products(rows[high - 2 : high], points, last)
            products[:, high - 1] = last[:, 1]
        for i in range(low, high):
            largest = -np.inf
            for j in range(i):
                cosine = products[i - low, j] * lengths[j] * lengths[i]
                out[i, j] = out[j, i] = cosine
                largest = max(largest, cosine)
            nearest[i] = largest
            out[i, i] = products[i - low, i] * lengths[i] * lengths[i]


@_jit(_REORDERED)
def _four_rows_products(rows, points, out):
    """Fill the inner products (2, n) of rows, four at a time, with two points."""
    p0, p1 = points[0], points[1]
    for i in range(0, rows.shape[0] - 3, 4):
        a0 = a1 = b0 = b1 = c0 = c1 = d0 = d1 = 0.0
        for k in range(rows.shape[1]):
            a, b = np.float64(rows[i, k]), np.float64(rows[i + 1, k])
            c, d = np.float64(rows[i + 2, k]), np.float64(rows[i + 3, k])
            a0 += a * p0[k]
            a1 += a * p1[k]
            b0 += b * p0[k]
            b1 += b * p1[k]
            c0 += c * p0[k]
            c1 += c * p1[k]
            d0 += d * p0[k]
            d1 += d * p1[k]
        out[0, i], out[0, i + 1], out[0, i + 2], out[0, i + 3] = a0, b0, c0, d0
        out[1, i], out[1, i + 1], out[1, i + 2], out[1, i + 3] = a1, b1, c1, d1


@_jit()
def _fill_columns(rows, lengths, decay, those, out):
    """Fill k(row, point), shape (2, n), for the rows at two positions.

    The last rows, fewer than four, are summed in the same order as the others: copies tie.
    """
    points = np.empty((AHEAD, rows.shape[1]))
    for j in range(AHEAD):
        points[j] = rows[those[j]]
    _four_rows_products(rows, points, out)
    left = rows.shape[0] % 4
    if left:
        last, products = np.zeros((4, rows.shape[1]), rows.dtype), np.empty((AHEAD, 4))
        last[:left] = rows[-left:]
        _four_rows_products(last, points, products)
        out[:, -left:] = products[:, :left]
    for j in range(AHEAD):
        _apply_kernel(lengths, lengths[those[j]], decay, out[j])


@_jit(types=[(rows, _VECTOR, _FLOAT, _NUMBERS, _FILLED_ROWS) for rows in _ROWS])
def fill_covariance(rows, lengths, decay, targets, out):
    """Fill k(target, row), shape (t, n), for targets that are rows, given by position (t,)."""
    t = targets.shape[0]
    columns = np.empty((AHEAD, rows.shape[0]))
    for low in range(0, t, AHEAD):
        high = min(low + AHEAD, t)
        _fill_columns(rows, lengths, decay, (targets[low], targets[high - 1]), columns)
        out[low:high] = columns[: high - low]


@_jit()
def _runner_up(gains, slots, best):
    """Return the candidate with the largest gain of those without a column; `best` if none.

    It is likely to be chosen soon. With three runners-up fewer choices need new columns, and yet
    it takes longer (benchmarks/LOG.md).
    """
    runner_up, largest = best, -1.0
    for x in range(gains.shape[0]):
        if slots[x] < 0 and x != best and gains[x] > largest:
            runner_up, largest = x, gains[x]
    return runner_up


# The steps of `greedy` are inlined into it before it is compiled.
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
def _close(pool, left):
    """Close what no longer fits the budget or its group; return whether there was any."""
    has_refused = False
    for x in range(pool.priorities.shape[0]):
        is_full = pool.groups.shape[0] > 0 and pool.rooms[pool.groups[x]] == 0
        if pool.priorities[x] != CLOSED and (is_full or pool.costs[x] > left):
            pool.priorities[x] = CLOSED
            has_refused = True
    return has_refused


@_jit(inline="always")
def _first_largest(values, priorities, priority):
    """Return the lowest position of a priority whose value is the largest, up to rounding.

    -1 if a value of that priority is not finite, or none has that priority.
    """
    largest = -np.inf
    for x in range(values.shape[0]):
        value = values[x]
        if priorities[x] == priority and (value > largest or value != value):  # NaN stays
            largest = value
    if not np.isfinite(largest):
        return -1
    enough = largest - abs(largest) * TIE_TOLERANCE
    for x in range(values.shape[0]):
        if priorities[x] == priority and values[x] >= enough:
            return x
    return -1


@_jit(inline="always")
def _observe(best, step, column, noise, factor, diagonal, pool, loads):
    """Condition on a noisy look at `best`; return by how much the weighted variance falls.

    `column` (n,) is its prior covariance with each candidate. Fills row `step` of `factor` and
    changes the covariance (t, n) and `diagonal` (n,), as `Posterior.observe`.
    """
    covariance, weights = pool.covariance, pool.weights
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


@_jit(types=[(rows, _POOL, _SETTINGS) for rows in _ROWS])
def greedy(rows, pool, settings):
    """Return positions, variances and the number of the stop reason: `Stops._choose`, compiled.

    k(x, x) is 1. Columns come from `pool.cosines` if it has rows, else from `rows` (n, d).
    """
    n, capacity, noise, decay = rows.shape[0], settings.capacity, settings.noise, settings.decay
    covariance, weights, priorities = pool.covariance, pool.weights, pool.priorities
    has_cosines, has_limits = pool.cosines.shape[0] > 0, pool.costs.shape[0] > 0
    has_step_weights, has_groups = pool.step_weights.shape[0] > 0, pool.groups.shape[0] > 0
    diagonal = np.ones(n)
    factor = np.empty((capacity, n))
    positions = np.empty(capacity, np.int64)
    variances = np.empty(capacity + 1)
    slots = np.full(n, -1, np.int64)
    columns = np.empty((0 if has_cosines else min(n, capacity) * AHEAD, n))
    n_columns = 0
    gains, worth, column, ones = np.empty(n), np.empty(n), np.empty(n), np.ones(n)
    loads = np.empty(weights.shape[0])
    left, has_refused = settings.budget, False
    variances[0] = settings.variance
    reason, step = N_SELECT, 0
    while step < settings.n_select:
        if variances[step] <= settings.max_variance:
            reason = MAX_VARIANCE
            break
        if has_limits:
            has_refused |= _close(pool, left)
        priority = priorities.min() if n > 0 else CLOSED
        if priority == CLOSED:
            reason = LIMITS if has_refused else POOL_EXHAUSTED
            break
        own = pool.step_weights[step] if has_step_weights else weights
        _fill_gains(covariance, own, diagonal, noise, gains)
        if has_limits:
            worth[:] = gains / pool.prices
        best = _first_largest(worth if has_limits else gains, priorities, priority)
        if best < 0:
            reason = OVERFLOW
            break
        if step == 0 and settings.first >= 0:
            best = settings.first
        gain = gains[best]
        if has_step_weights:  # the stops go by the gain under all weights
            gain = 0.0
            for target in range(weights.shape[0]):
                gain += weights[target] * covariance[target, best] * covariance[target, best]
            gain /= diagonal[best] + noise
        if gain < settings.min_gain:
            reason = MIN_GAIN
            break
        deviation = np.sqrt(max(variances[step] - gain, 0.0))
        if settings.alpha > 0.0 and deviation > 1.0 / (settings.alpha * (step + 1)):
            reason = ALPHA
            break
        if not settings.allow_repeats:
            priorities[best] = CLOSED
        if has_limits:
            left -= pool.costs[best]
        if has_groups:
            pool.rooms[pool.groups[best]] -= 1
        if has_cosines:
            column[:] = pool.cosines[best]
            _apply_kernel(ones, 1.0, decay, column)
        else:
            if slots[best] < 0:
                other = _runner_up(gains, slots, best)
                out = columns[n_columns : n_columns + AHEAD]
                _fill_columns(rows, pool.lengths, decay, (best, other), out)
                slots[other], slots[best] = n_columns + 1, n_columns
                n_columns += AHEAD
            column[:] = columns[slots[best]]
        drop = _observe(best, step, column, noise, factor, diagonal, pool, loads)
        positions[step] = best
        step += 1
        variances[step] = max(variances[step - 1] - drop, 0.0)
    return positions[:step], variances[: step + 1], reason
