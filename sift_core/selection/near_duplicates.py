"""Which candidates are near-duplicates of one another, read from how new each is to the pool.

Distances are u = (1 - cos) / (1 - mean cosine of the pool): 0 between copies, 1 between two
chunks that are as unlike as the pool's usually are.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from sift_core.types import BoolArray, FloatArray, IntArray

SURELY_NEAR = 0.05  # closer than this is a near-duplicate in any pool. Guess.
LIKELY_NEAR = 0.15  # the same where the pool is too small to be read, see decision 0006, or where
# the caller says that there are versions, by preferring one: decision 0021
FEWEST_TO_READ = 20  # chunks: with fewer even a gap of a factor e hardly lacks `MISSING_CHUNKS`
NEVER_NEAR = 0.5  # half as unlike as two usual chunks is not a near-duplicate in any pool. Guess.
# The same where the caller weights the targets. It knows then what tells chunks apart, such as
# their words: mails that quote a mail are not versions of it. Decision 0036.
NEVER_NEAR_IF_WEIGHTED = 0.2
COSINE_DIGITS = 12  # to which two are told apart: copies tie whatever order products are summed in
RESOLUTION = 0.01  # distances below this are alike: nearly exact copies make no gap of their own

# A gap may hold this share of what lies below it: a few different chunks are always close.
STRAY_SHARE = 0.05

# How many chunks must be missing from a gap. With none expected to be missing, a Poisson
# count misses 10 with probability exp(-10), and some 200 gaps are looked at: 1 pool in 100.
MISSING_CHUNKS = 10.0

# Of several gaps the first is taken from which at least this share is missing of what is missing
# from the widest: in doubt two chunks are two, since one taken for two only repeats itself.
SHARE_OF_WIDEST = 0.5

# Where in that gap the line is drawn (0: near-duplicates, 1: the others, on a log scale): above
# the strays among the near-duplicates, and for the same reason nearer to them.
PLACE_IN_GAP = 0.2


def distances_to_earlier(
    nearest: FloatArray, typical: float, shown: FloatArray | None = None
) -> FloatArray:
    """Return u to the nearest of the more relevant chunks, shape (n,); inf for the first.

    Args:
        nearest: The largest cosine of each chunk with a more relevant one, shape (n,).
        typical: 1 - mean cosine of the pool, > 0.
        shown: Cosines with what was shown before, shape (n, m); counts as more relevant.
    """
    if shown is not None:
        nearest = np.maximum(nearest, shown.max(axis=1, initial=-np.inf))
    distance: FloatArray = (1.0 - nearest) / typical
    return distance


def nearest_earlier(cosines: FloatArray) -> FloatArray:
    """Return the largest cosine of each chunk with an earlier one, shape (n,); -inf for the first.

    Args:
        cosines: Among the chunks, most relevant first, shape (n, n).
    """
    largest: FloatArray = cosines.max(axis=1, where=is_earlier(len(cosines)), initial=-np.inf)
    return largest


@lru_cache(maxsize=8)
def is_earlier(n: int) -> BoolArray:
    """Return where column j comes before row i, shape (n, n), read-only: pools are of few sizes."""
    mask = np.tri(n, k=-1, dtype=bool)
    mask.flags.writeable = False
    return mask


def near_duplicate_radius(distance: FloatArray, largest: float = NEVER_NEAR) -> float:
    """Return the largest u at which a chunk is a near-duplicate of a more relevant one.

    Between the distances of near-duplicates and those of different chunks lies a gap; without
    near-duplicates there is none, since distances of different chunks spread smoothly. If below u
    lie k chunks and their number grew as a power of u (of one or more: the dimension of the
    data), at least k · log(w) more would lie between u and w · u. So a gap up to w · u is as
    wide as the number of chunks missing from it, and counts if chance hardly ever takes
    away as many. A pool of fewer than 20 chunks cannot be read: `LIKELY_NEAR`.

    Args:
        distance: Shape (n,), from `distances_to_earlier`.
        largest: The radius is no larger than this. Default: 0.5.

    References:
        Grassberger and Procaccia (1983): the growth of such counts as a measure of
        dimension. The rule itself is ours: docs/decisions/0006.
    """
    below = np.sort(np.maximum(distance[np.isfinite(distance)], RESOLUTION))
    if len(below) < FEWEST_TO_READ:
        return LIKELY_NEAR
    counts = np.arange(1, len(below) + 1)
    strays = np.floor(STRAY_SHARE * counts).astype(np.intp)
    # A gap ends at a chunk beyond it, and at u = 1 at the latest: as unlike as usual.
    ends = np.minimum(below[np.minimum(counts + strays, len(below) - 1)], 1.0)
    widths = np.log(np.maximum(ends / below, 1.0))
    missing = np.where(below <= largest, counts * (widths - STRAY_SHARE), -np.inf)
    if missing.max() < MISSING_CHUNKS:
        return SURELY_NEAR
    enough = max(MISSING_CHUNKS, SHARE_OF_WIDEST * float(missing.max()))
    first = int(np.argmax(missing >= enough))
    return max(SURELY_NEAR, float(below[first] * np.exp(PLACE_IN_GAP * widths[first])))


def first_of_class(
    cosines: FloatArray, is_new: BoolArray, shown: FloatArray | None = None
) -> IntArray:
    """Return the first chunk of each one's class of near-duplicates, shape (n,).

    A near-duplicate is of the class of the nearest chunk above it, however far that has gone
    from the first: versions of versions. -1 - j for the class of row j of what was shown before.

    Args:
        cosines: Among the chunks, most relevant first, shape (n, n).
        is_new: Which are no near-duplicates of an earlier one, shape (n,).
        shown: Cosines with what was shown before, shape (n, m).
    """
    those = np.flatnonzero(~is_new)
    earlier = np.where(is_earlier(len(cosines))[those], cosines[those], -np.inf)
    if shown is not None:
        earlier = np.concatenate([earlier, shown[those]], axis=1)
    nearest = np.argmax(np.round(earlier, COSINE_DIGITS), axis=1)
    n = len(cosines)
    first = list(range(n))
    for i, near in zip(those.tolist(), nearest.tolist(), strict=True):
        first[i] = first[near] if near < n else n - 1 - near
    return np.array(first, dtype=np.intp)


def preferred_of_each(first: IntArray, prefer: FloatArray) -> IntArray:
    """Return the chunk with the highest `prefer` of each class, the earliest of those that tie.

    Args:
        first: From `first_of_class`, shape (n,).
        prefer: Shape (n,).

    Returns:
        Shape (m,), in the order of the first chunks of the m classes.
    """
    by_class = np.lexsort((np.arange(len(first)), -prefer, first))
    by_class = by_class[first[by_class] >= 0]
    starts = np.unique(first[by_class], return_index=True)[1]
    found: IntArray = by_class[starts]
    return found


def stands_for(first: IntArray, preferred: IntArray, n: int) -> IntArray:
    """Return the preferred chunk of each one's class, shape (n,), or itself if none was compared.

    Args:
        first: From `first_of_class`, of the first chunks.
        preferred: Of each class, in the order of their first chunks.
        n: How many chunks there are.
    """
    found: IntArray = np.arange(n)
    known = np.flatnonzero(first >= 0)
    found[known] = preferred[np.searchsorted(np.unique(first[known]), first[known])]
    return found


def first_of_each(
    rows: FloatArray, typical: float, *, n_read: int, with_classes: bool = False
) -> IntArray:
    """Return the first chunk of each one's class of near-duplicates, shape (n,).

    The radius is read from the first `n_read` chunks and one more that is as unlike as usual,
    without which a pool of nothing but near-duplicates would have no gap. Later chunks are compared
    with the first ones before them and with the `n_read` chunks that they stand among,
    so that the matrix of all cosines is never built.

    Args:
        rows: Unit vectors, most relevant first, shape (n, d), float64.
        typical: How unlike two chunks usually are, 1 - cosine, > 0.
        n_read: >= 1.
        with_classes: Without, -1 for all that are not the first. With, what is closer than
            `LIKELY_NEAR` is a near-duplicate in any pool.
    """
    first = np.full(len(rows), -1, dtype=np.intp)
    radius = np.nan
    for start in range(0, len(rows), n_read):
        block = rows[start : start + n_read]
        cosines = block @ block.T
        earlier = np.flatnonzero(first[:start] == np.arange(start))
        shown = block @ rows[earlier].T
        distance = distances_to_earlier(nearest_earlier(cosines), typical, shown=shown)
        if start == 0:
            radius = near_duplicate_radius(np.append(distance, 1.0))
            radius = max(radius, LIKELY_NEAR) if with_classes else radius
        is_new = distance > radius
        own = first[start : start + n_read]
        if with_classes:
            found = first_of_class(cosines, is_new, shown)
            own[:] = found + start
            own[found < 0] = earlier[-1 - found[found < 0]]
        else:
            own[is_new] = start + np.flatnonzero(is_new)
    return first
