"""u is 0 between copies and 1 between two chunks that are as unlike as the pool's usually are."""

import numpy as np
import pytest

from sift_core.selection.near_duplicates import (
    LIKELY_NEAR,
    NEVER_NEAR,
    SURELY_NEAR,
    distances_to_earlier,
    near_duplicate_radius,
    nearest_earlier,
)

FAR = np.linspace(0.8, 0.95, 400)  # different chunks: so many that a few near-duplicates are few


def test_distance_by_hand():
    # The nearest earlier one has cosine .8 for the second, max(.5, .9) for the third.
    cosines = np.array([[1.0, 0.8, 0.5], [0.8, 1.0, 0.9], [0.5, 0.9, 1.0]])
    assert distances_to_earlier(nearest_earlier(cosines), 0.5) == pytest.approx(
        [np.inf, 0.2 / 0.5, 0.1 / 0.5]
    )
    shown = np.array([[0.7, 0.2], [0.1, 0.95], [0.1, 0.1]])  # counts as earlier
    assert distances_to_earlier(nearest_earlier(cosines), 0.5, shown=shown) == pytest.approx(
        [0.6, 0.1, 0.2]
    )


@pytest.mark.parametrize("n", [0, 1])
def test_fewer_than_two_chunks(n):
    assert distances_to_earlier(nearest_earlier(np.eye(n)), 1.0).tolist() == [np.inf] * n


def near(*groups, far=FAR):
    """Return distances: each group is how many there are at a distance; others are different."""
    return np.concatenate([*(np.full(n, distance) for n, distance in groups), far])


@pytest.mark.parametrize(
    ("distance", "radius"),
    [
        # A single pair of copies makes no gap.
        (near((1, np.inf), (1, 0.0)), SURELY_NEAR),
        (near((1, np.inf), (1, 0.2)), SURELY_NEAR),
        # A gap counts from ten missing chunks on. 7 and 8 chunks up to .2, then none up to .8:
        # 7 · (log 4 - .05) = 9.4, 8 · … = 10.7. A fifth into that gap: .2 · 4^.2
        (near((7, 0.2)), SURELY_NEAR),
        (near((8, 0.2)), 0.2 * 4**0.2),
        # It ends where chunks are as unlike as usual. Missing between .4 and 1:
        # 11 · (log 2.5 - .05) = 9.5, 12 · … = 10.4. Up to 1.6 it would be 14.7.
        (near((11, 0.4), far=2 * FAR), SURELY_NEAR),
        (near((12, 0.4), far=2 * FAR), 0.4 * 2.5**0.2),
        # The nearest gap of at least half the widest counts. Missing from .01 to .1 and from .1
        # to .8: 10 · (log 10 - .05) = 23 of 50 · 2.03 = 101: less than half, as 20 · 2.25 = 45 of
        # 60 · 2.03 = 122. 40 · 2.25 = 90 of 162: more.
        (near((10, 0.0), (40, 0.1)), 0.1 * 8**0.2),
        (near((20, 0.0), (40, 0.1)), 0.1 * 8**0.2),
        (near((40, 0.0), (40, 0.1)), SURELY_NEAR),
        # Nearly exact copies make no gap of their own: down to rounding it would be
        # 20 · log(1e14), the widest by far.
        (near((20, 1e-15), (100, 0.1)), 0.1 * 8**0.2),
        # 4 of 100 may lie in a gap, up to .8. One more than strays would end it at .12.
        (near((100, 0.1), (4, 0.12)), 0.1 * 8**0.2),
        # 8 of 100 are too many: 100 · (log 1.2 - .05) = 13 is missing up to .12, more than 10 but
        # less than half of 108 · (log(.8 / .12) - .05) = 199.
        (near((100, 0.1), (8, 0.12)), 0.12 * (0.8 / 0.12) ** 0.2),
        # What is half as unlike as usual is no near-duplicate.
        (near((100, NEVER_NEAR - 0.01), far=2 * FAR), 0.49 * (1 / 0.49) ** 0.2),
        (near((100, NEVER_NEAR + 0.01), far=2 * FAR), SURELY_NEAR),
        # The radius is never below what surely are near-duplicates: .02 · 40^.2 = .042
        (near((100, 0.02)), 0.05),
        # 19 distances are too few to be read, 20 are not; one chunk beyond it ends a gap.
        (near((1, np.inf), (18, 0.2), far=[0.8]), LIKELY_NEAR),
        (near((1, np.inf), (19, 0.2), far=[0.8]), 0.2 * 4**0.2),
        (near(far=[]), LIKELY_NEAR),
        (near((1, np.inf), far=[]), LIKELY_NEAR),
        (near((1, np.inf), (10, 0.01), (9, 0.9), far=[]), LIKELY_NEAR),
    ],
)
def test_the_radius_by_hand(distance, radius):
    assert near_duplicate_radius(distance) == pytest.approx(radius, rel=1e-3)
