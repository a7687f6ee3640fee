"""Loops compiled by Numba: products, the kernel and the greedy choice. `compiled` calls them.

Embeddings are read in the precision they come in and multiplied in float64, where the product
of two float32 numbers is exact: no copy in float64 is made, and none is needed for its answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sift_core.errors import MissingDependencyError
from sift_core.selection.greedy import TIE_TOLERANCE
from sift_core.selection.kernels import COARSE, LARGEST_SQUARE, SMALLEST_SQUARE
from sift_core.selection.limits import CHOSEN
from sift_core.types import StopReason

try:
    import numba
except ImportError as error:
    raise MissingDependencyError("numba", extra="fast") from error

REASONS = tuple(StopReason)
N_SELECT, POOL_EXHAUSTED, ALPHA, MAX_VARIANCE, MIN_GAIN, LIMITS = range(
    len(REASONS)
)  # as in the enum
OVERFLOW = len(REASONS)  # in place of a reason: the gains left the range of float64
BLOCK = 4  # columns computed at a time where all are needed
AHEAD = 2  # columns computed at a time by `greedy`: more are seldom chosen, fewer read too often
TILE = 1024  # candidates updated at a time, so that their column stays in the L1 cache

# Inner products may be summed in any order, which is what lets them run in vector registers. All
# other arithmetic is as written, so that copies of a vector stay equal wherever they stand.
_REORDERED = {"reassoc", "contract", "nsz"}


# What `compiled` calls is compiled for these types as the module is imported. Left to the first
# call, each kind of array would be compiled when it first comes, in seconds: a read-only one too.
_INT, _FLOAT, _BOOLEAN = numba.int64, numba.float64, numba.boolean
_VECTOR = numba.types.Array(_FLOAT, 1, "C", readonly=True)
_MATRIX = numba.types.Array(_FLOAT, 2, "C", readonly=True)
_NUMBERS = numba.types.Array(_INT, 1, "C", readonly=True)
_ROWS = [numba.types.Array(each, 2, "C", readonly=True) for each in (numba.float32, _FLOAT)]
_FILLED, _FILLED_ROWS = _FLOAT[::1], _FLOAT[:, ::1]


def _jit(
    fastmath: set[str] | bool = False,
    *,
    inline: str = "never",
    types: Sequence[tuple[Any, ...]] | None = None,
) -> Callable[[Any], Any]:
    """Compile for these types of arguments now, or for those of each call if there are none."""

    def compile_for(function: Any) -> Any:
        options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
        options |= {"fastmath": fastmath, "inline": inline}
        signatures = None if types is None else list(types)
        try:
            return numba.njit(signatures, cache=True, **options)(function)
        except (RuntimeError, OSError):  # no folder to keep compiled code in, or no room
            return numba.njit(signatures, **options)(function)

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


@_jit(_REORDERED)
def fill_products(rows, point, out):
    """Fill the inner products of all rows with one point."""
    for i in range(rows.shape[0]):
        product = 0.0
        for k in range(rows.shape[1]):
            product += np.float64(rows[i, k]) * np.float64(point[k])
        out[i] = product


@_jit()
def _apply_kernel(lengths, scale, decay, values):
    """Turn inner products into kernel values."""
    for i in range(values.shape[0]):
        values[i] *= lengths[i] * scale
    if decay > 0.0:
        for i in range(values.shape[0]):
            values[i] = np.exp(((min(values[i], 1.0) + COARSE) - (COARSE + 1.0)) * decay)


@_jit(types=[(rows, _VECTOR, _VECTOR, _FLOAT, _FLOAT, _FILLED) for rows in _ROWS])
def fill_column(rows, lengths, point, scale, decay, out):
    """Fill k(row, point) for unit vectors; `decay` is 0 for the linear kernel."""
    fill_products(rows, point, out)
    _apply_kernel(lengths, scale, decay, out)


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
def _block_products(rows, points, out):
    """Fill the inner products (4, n) of n >= 2 rows with four points.

    Every row is summed in the same order, the last of an odd number too, so that copies tie.
    """
    n = rows.shape[0]
    _pair_products(rows, points, out)
    if n % 2 == 1:
        last = np.empty((BLOCK, 2))
        _pair_products(rows[n - 2 :], points, last)
        out[:, n - 1] = last[:, 1]


@_jit(_REORDERED)
def _four_rows_products(rows, points, out):
    """Fill the inner products (2, n) of a multiple of four rows, read once, with two points."""
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
def _two_columns(rows, lengths, points, scales, decay, out):
    """Fill k(row, point) for two points at once; `out` is (2, n).

    The last rows, fewer than four, are summed in the same order too, so that copies tie.
    """
    n = rows.shape[0]
    _four_rows_products(rows, points, out)
    left = n % 4
    if left:
        last, products = np.zeros((4, rows.shape[1]), rows.dtype), np.empty((AHEAD, 4))
        last[:left] = rows[n - left :]
        _four_rows_products(last, points, products)
        out[:, n - left :] = products[:, :left]
    for j in range(AHEAD):
        _apply_kernel(lengths, scales[j], decay, out[j])


@_jit(types=[(rows, _VECTOR, _FILLED_ROWS, _FILLED) for rows in _ROWS])
def fill_cosines(rows, lengths, out, nearest):
    """Fill the cosines (n, n) among n >= 2 rows, and the largest with an earlier row (n,).

    `lengths` are 1 / |row|. Before the first row is none: -inf.
    """
    n = rows.shape[0]
    points = np.zeros((BLOCK, rows.shape[1]))
    products = np.empty((BLOCK, n))
    for low in range(0, n, BLOCK):
        high = min(low + BLOCK, n)
        points[: high - low] = rows[low:high]
        _block_products(rows[:high], points, products)
        for i in range(low, high):
            largest = -np.inf
            for j in range(i):
                cosine = products[i - low, j] * lengths[j] * lengths[i]
                out[i, j] = out[j, i] = cosine
                largest = max(largest, cosine)
            nearest[i] = largest
            out[i, i] = products[i - low, i] * lengths[i] * lengths[i]


@_jit(types=[(rows, _VECTOR, _FLOAT, _NUMBERS, _FILLED_ROWS) for rows in _ROWS])
def fill_covariance(rows, lengths, decay, targets, out):
    """Fill k(target, row), shape (t, n), for targets that are rows, given by position (t,)."""
    points = np.zeros((BLOCK, rows.shape[1]))
    scales = np.zeros(BLOCK)
    columns = np.empty((BLOCK, rows.shape[0]))
    for low in range(0, targets.shape[0], BLOCK):
        high = min(low + BLOCK, targets.shape[0])
        for j in range(low, high):
            points[j - low] = rows[targets[j]]
            scales[j - low] = lengths[targets[j]]
        _block_products(rows, points, columns)
        for j in range(high - low):
            _apply_kernel(lengths, scales[j], decay, columns[j])
        out[low:high] = columns[: high - low]


@_jit()
def _fill_columns(rows, lengths, decay, best, gains, slots, columns, n_columns, points, scales):
    """Compute the column of `best` and of the runner-up among those that have none yet.

    The runner-up is likely to be chosen within a few steps: of 50 choices among 200 chunks of
    text, 28 need this call, 33 among 5,000. With three runners-up these are 17 and 23, which
    takes longer (benchmarks/LOG.md). Returns the number of columns filled so far.
    """
    slots[best] = n_columns
    runner_up, largest = best, -1.0
    for i in range(rows.shape[0]):
        if slots[i] < 0 and gains[i] > largest:
            runner_up, largest = i, gains[i]
    slots[runner_up] = n_columns + 1 if runner_up != best else n_columns
    for j, x in enumerate((best, runner_up)):
        scales[j] = lengths[x]
        points[j] = rows[x]
    _two_columns(rows, lengths, points, scales, decay, columns[n_columns : n_columns + AHEAD])
    return n_columns + AHEAD


# The steps of `greedy` are put into it before it is compiled, which takes no longer than one loop.


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
def _close(tiers, costs, left, groups, rooms):
    """Put what is no longer allowed into the tier of the chosen; return whether there was any."""
    has_refused = False
    for x in range(tiers.shape[0]):
        is_full = groups.shape[0] > 0 and rooms[groups[x]] == 0
        if tiers[x] != CHOSEN and (is_full or costs[x] > left):
            tiers[x] = CHOSEN
            has_refused = True
    return has_refused


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


@_jit(
    types=[
        (
            rows,
            _VECTOR,  # lengths
            _FLOAT,
            _MATRIX,  # cosines
            _FILLED_ROWS,  # covariance
            _VECTOR,  # weights
            _FILLED,  # diagonal
            numba.int8[::1],  # tiers
            *(_FLOAT, _FLOAT, _INT, _INT, _BOOLEAN, _FLOAT, _FLOAT, _FLOAT),
            *(_VECTOR, _VECTOR, _FLOAT),  # costs, prices, left
            *(_NUMBERS, _INT[::1], _INT),  # groups, rooms, first
            _MATRIX,  # own_weights
            _NUMBERS,  # turns
        )
        for rows in _ROWS
    ]
)
def greedy(
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
    costs,
    prices,
    left,
    groups,
    rooms,
    first,
    own_weights,
    turns,
):
    """Return positions, variances and the number of the stop reason.

    Columns come from `cosines` (n, n) where it has rows, else from `rows` (n, d). At most
    `capacity` of the `n_select` steps can be taken. Changes `covariance` (t, n), `diagonal`
    (n,), `tiers` (n,) and `rooms`. Limits are as in `limits.Allowance`, none where `costs` is
    empty; the first choice is `first` unless that is negative. Turns are as in `greedy.Turns`,
    `own_weights` (m, t) and `turns` (k,), none where these are empty.
    """
    n = diagonal.shape[0]
    factor = np.empty((capacity, n))
    positions = np.empty(capacity, np.int64)
    variances = np.empty(capacity + 1)
    slots = np.full(n, -1, np.int64)
    columns = np.empty((min(rows.shape[0], capacity) * AHEAD, n))
    points = np.empty((AHEAD, rows.shape[1]))
    scales = np.empty(AHEAD)
    n_columns = 0
    ones = np.ones(n)
    gains = np.empty(n)
    column = np.empty(n)
    worth = np.empty(costs.shape[0])
    has_refused = False
    loads = np.empty(weights.shape[0])
    variances[0] = variance
    reason = N_SELECT
    step = 0
    while step < n_select:
        if variances[step] <= max_variance:
            reason = MAX_VARIANCE
            break
        if costs.shape[0] > 0:
            has_refused |= _close(tiers, costs, left, groups, rooms)
        tier = CHOSEN
        for x in range(n):
            tier = min(tier, tiers[x])
        if tier == CHOSEN:
            reason = LIMITS if has_refused else POOL_EXHAUSTED
            break
        if turns.shape[0] > 0:
            _fill_gains(covariance, own_weights[turns[step]], diagonal, noise, gains)
        else:
            _fill_gains(covariance, weights, diagonal, noise, gains)
        if costs.shape[0] > 0:
            worth[:] = gains / prices
            best = _first_largest(worth, tiers, tier)
        else:
            best = _first_largest(gains, tiers, tier)
        if step == 0 and first >= 0 and best >= 0:
            best = first
        if best < 0:
            reason = OVERFLOW
            break
        gain = gains[best]
        if turns.shape[0] > 0:  # that of all questions
            gain = 0.0
            for target in range(weights.shape[0]):
                gain += weights[target] * covariance[target, best] * covariance[target, best]
            gain /= diagonal[best] + noise
        if gain < min_gain:
            reason = MIN_GAIN
            break
        deviation = np.sqrt(max(variances[step] - gain, 0.0))
        if alpha > 0.0 and deviation > 1.0 / (alpha * (step + 1)):
            reason = ALPHA
            break
        if not repeats:
            tiers[best] = CHOSEN
        if costs.shape[0] > 0:
            left -= costs[best]
            if groups.shape[0] > 0:
                rooms[groups[best]] -= 1
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
