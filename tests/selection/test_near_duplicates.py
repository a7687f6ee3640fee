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
from tests.selection.oracle import unit

FAR = np.linspace(0.8, 0.95, 400)  # different chunks: so many that a few near-duplicates are few


def text_like(rng, n, *, d=128, decay=1.0, mean=0.7):
    """Return unit vectors whose spectrum falls as embeddings' of text does, with a common part."""
    scales = np.arange(1, d + 1) ** (-decay / 2)
    return unit(rng.standard_normal((n, d)) * scales / np.linalg.norm(scales) + mean / d**0.5)


def noisy_copies(rng, rows, n_copies, u):
    """Return each row `n_copies` times, about u from one another in the final pool's scale.

    If s is the length of the noise, copies are at cosine 1 / (1 + s²).
    """
    typical = typical_distance(rows)
    copies = np.repeat(rows, n_copies, axis=0)
    noise = rng.standard_normal(copies.shape)
    noise -= (noise * copies).sum(axis=1, keepdims=True) * copies
    return unit(copies + unit(noise) * (1 / (1 - u * typical) - 1) ** 0.5)


def typical_distance(rows):
    n = len(rows)
    return 1 - ((rows @ rows.T).sum() - n) / (n * (n - 1))


def distances_of(rows):
    return distances_to_earlier(nearest_earlier(rows @ rows.T), typical_distance(rows))


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


@pytest.mark.parametrize(
    ("n", "settings"),
    [
        (200, {"d": 64, "decay": 0.0, "mean": 0.0}),
        (200, {"decay": 1.0, "mean": 0.0}),
        (200, {"decay": 1.0, "mean": 1.0}),
        (50, {"decay": 1.0}),
        (30, {"decay": 1.0}),
    ],
    ids=["isotropic", "centred", "with a common part", "50", "30"],
)
def test_a_pool_without_near_duplicates_has_no_gap(n, settings):
    radii = [
        near_duplicate_radius(distances_of(text_like(np.random.default_rng(seed), n, **settings)))
        for seed in range(100)
    ]
    assert np.mean(np.array(radii) == SURELY_NEAR) >= 0.98


@pytest.mark.parametrize("u", [0.03, 0.1, 0.2, 0.3])
@pytest.mark.parametrize("n_copies", [2, 3, 4, 8])
def test_the_radius_tells_near_duplicates_from_distinct_chunks(n_copies, u):
    # As far as the strays that a gap may hold: 5 % of the near-duplicates.
    rng = np.random.default_rng(n_copies)
    chunks = text_like(rng, 40)
    rows = noisy_copies(rng, chunks, n_copies, u)
    order = rng.permutation(len(rows))
    distance = distances_of(rows[order])
    is_first = np.zeros(len(rows), dtype=bool)
    is_first[np.unique((order // n_copies), return_index=True)[1]] = True
    radius = near_duplicate_radius(distance)
    assert radius < distance[is_first].min()
    assert np.mean(distance[~is_first] <= radius) >= 0.95


def test_a_single_pair_of_copies_makes_no_gap():
    assert near_duplicate_radius(np.concatenate([[np.inf, 0.0], FAR])) == SURELY_NEAR
    assert near_duplicate_radius(np.concatenate([[np.inf, 0.2], FAR])) == SURELY_NEAR


@pytest.mark.parametrize(
    ("size", "radius"),
    [
        # 7 and 8 chunks up to .2, then none up to .8: 7 · (log 4 - .05) = 9.4, 8 · … = 10.7. A
        # fifth into that gap: .2 · 4^.2
        (7, SURELY_NEAR),
        (8, 0.2 * 4**0.2),
    ],
)
def test_a_gap_counts_from_ten_missing_chunks_by_hand(size, radius):
    assert near_duplicate_radius(np.concatenate([np.full(size, 0.2), FAR])) == pytest.approx(radius)


@pytest.mark.parametrize(
    ("size", "radius"),
    [
        # Missing between .4 and 1: 11 · (log 2.5 - .05) = 9.5, 12 · … = 10.4. Up to 1.6 it would
        # be 14.7.
        (11, SURELY_NEAR),
        (12, 0.4 * 2.5**0.2),
    ],
)
def test_a_gap_ends_where_chunks_are_as_unlike_as_usual_by_hand(size, radius):
    distance = np.concatenate([np.full(size, 0.4), 2 * FAR])
    assert near_duplicate_radius(distance) == pytest.approx(radius)


@pytest.mark.parametrize(
    ("n_exact", "radius"),
    [
        # Missing from .01 to .1 and from .1 to .8: 10 · (log 10 - .05) = 23 of 50 · 2.03 = 101:
        # less than half, as 20 · 2.25 = 45 of 60 · 2.03 = 122. 40 · 2.25 = 90 of 162: more.
        (10, 0.1 * 8**0.2),
        (20, 0.1 * 8**0.2),
        (40, SURELY_NEAR),
    ],
)
def test_the_nearest_gap_of_at_least_half_the_widest_counts_by_hand(n_exact, radius):
    distance = np.concatenate([np.zeros(n_exact), np.full(40, 0.1), FAR])
    assert near_duplicate_radius(distance) == pytest.approx(radius)


def test_nearly_exact_copies_make_no_gap_of_their_own():
    # Down to rounding the gap to the copies would be 20 · log(1e14), the widest by far.
    distance = np.concatenate([np.full(20, 1e-15), np.full(100, 0.1), FAR])
    assert near_duplicate_radius(distance) == pytest.approx(0.1 * 8**0.2)


def test_a_few_close_chunks_do_not_hide_the_gap():
    # 4 of 100 may lie in it, up to .8. One more than strays would end it at .12.
    distance = np.concatenate([np.full(100, 0.1), np.full(4, 0.12), FAR])
    assert near_duplicate_radius(distance) == pytest.approx(0.1 * 8**0.2, rel=1e-3)


def test_more_close_chunks_than_strays_do():
    # 8 of 100 are too many: 100 · (log 1.2 - .05) = 13 is missing up to .12, more than 10 but
    # less than half of 108 · (log(.8 / .12) - .05) = 199.
    distance = np.concatenate([np.full(100, 0.1), np.full(8, 0.12), FAR])
    assert near_duplicate_radius(distance) == pytest.approx(0.12 * (0.8 / 0.12) ** 0.2)


def test_what_is_half_as_unlike_as_usual_is_no_near_duplicate():
    close = np.concatenate([np.full(100, NEVER_NEAR - 0.01), 2 * FAR])
    assert near_duplicate_radius(close) == pytest.approx(0.49 * (1 / 0.49) ** 0.2)
    far = np.concatenate([np.full(100, NEVER_NEAR + 0.01), 2 * FAR])
    assert near_duplicate_radius(far) == SURELY_NEAR


def test_the_radius_never_is_below_what_surely_are_near_duplicates_by_hand():
    # .02 · 40^.2 = .042
    distance = np.concatenate([np.full(100, 0.02), FAR])
    assert near_duplicate_radius(distance) == 0.05


@pytest.mark.parametrize(
    ("n_near", "radius"),
    [
        (18, 0.15),  # 19 distances are too few to be read
        (19, 0.2 * 4**0.2),  # 20 are not; one chunk beyond it ends a gap
    ],
)
def test_the_smallest_pool_that_is_read_by_hand(n_near, radius):
    distance = np.concatenate([[np.inf], np.full(n_near, 0.2), [0.8]])
    assert near_duplicate_radius(distance) == pytest.approx(radius)


@pytest.mark.parametrize(
    "distance", [[], [np.inf], [np.inf, 0.0], [np.inf, 0.9], [np.inf] + [0.01] * 10 + [0.9] * 9]
)
def test_a_small_pool_is_not_read(distance):
    assert near_duplicate_radius(np.array(distance)) == LIKELY_NEAR
