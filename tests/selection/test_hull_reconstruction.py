import itertools

import numpy as np
import pytest

from sift_core import HullReconstructionSelector
from sift_core.errors import InvalidInputError
from tests.selection.oracle import unit

EXACT = HullReconstructionSelector(tolerance=1e-12, max_iterations=100_000)


def random_pool(seed, n, d):
    rng = np.random.default_rng(seed)
    centre = rng.standard_normal(d)  # as retrieved: on the query's side of the sphere
    return centre + 0.5 * rng.standard_normal(d), centre + rng.standard_normal((n, d))


def nearest_in_hull(query, candidates):
    """Return the distance of unit q to the hull of unit rows, trying every face."""
    q, x = unit(query), unit(candidates)
    best = np.inf
    for size in range(1, len(x) + 1):
        for face in map(list, itertools.combinations(range(len(x)), size)):
            # The nearest point of the plane through the face: min |q - Σ w x|², Σ w = 1.
            border = np.ones((size, 1))
            system = np.block([[x[face] @ x[face].T, border], [border.T, np.zeros((1, 1))]])
            weights = np.linalg.lstsq(system, np.append(x[face] @ q, 1.0), rcond=None)[0][:-1]
            if (weights > -1e-12).all():
                best = min(best, np.linalg.norm(q - weights @ x[face]))
    return best


def plain_frank_wolfe(query, candidates, n_select, n_iterations=250):
    """Return the weights of HullFT as published, without away steps."""
    q, x = unit(query), unit(candidates)
    weights = np.zeros(len(x))
    weights[np.argmax(x @ q)] = 1.0
    for _ in range(n_iterations):
        residual = q - weights @ x
        toward = int(np.argmax(x @ residual))
        if weights[toward] == 0 and np.count_nonzero(weights) >= n_select:
            break
        direction = x[toward] - weights @ x
        length = np.clip(residual @ direction / max(direction @ direction, 1e-300), 0, 1)
        weights *= 1 - length
        weights[toward] += length

    return weights


def integer_counts(query, candidates, weights, n_select):
    """Return counts by trying every change: floor, fill up, swap while that helps."""
    q, x = unit(query), unit(candidates)

    def error(counts):
        return np.sum((q - counts @ x / n_select) ** 2)

    support = np.flatnonzero(weights)
    one = np.eye(len(x), dtype=int)
    counts = np.floor(n_select * weights).astype(int)
    while counts.sum() < n_select:
        counts = min((counts + one[i] for i in support), key=error)
    while True:
        swaps = [counts - one[i] + one[j] for i in support for j in support if counts[i] > 0]
        best = min(swaps, key=error)
        if error(best) >= error(counts) - 1e-12:
            return counts
        counts = best


def test_two_orthogonal_candidates_by_hand():
    # q = (2, 1) / √5. On the segment from e_1 to e_2, w_1 - w_2 = q_1 - q_2 = 1 / √5, and the
    # distance is that of q to the line x + y = 1: (q_1 + q_2 - 1) / √2 = (3 / √5 - 1) / √2.
    found = EXACT.reconstruct([2, 1], [[0, 3], [5, 0]])
    assert found.weights == pytest.approx([(1 - 5**-0.5) / 2, (1 + 5**-0.5) / 2])
    assert found.distance == pytest.approx((3 / 5**0.5 - 1) / 2**0.5)
    assert found.duality_gap < 1e-12
    assert found.n_iterations == 1  # an exact line search needs one step on a segment


@pytest.mark.parametrize(
    ("n_select", "expected"),
    [
        (1, [1]),  # only one candidate may have weight
        (2, [1, 0]),  # 2 · 0.72 = 1.45 and 0.55: down to 1 and 0, one more of the second
        (3, [1, 1, 0]),  # 2.17 and 0.83
        (4, [1, 1, 1, 0]),  # 2.89 and 1.11
        (8, [1] * 6 + [0] * 2),  # 5.79 and 2.21
    ],
)
def test_counts_by_hand(n_select, expected):
    chosen = HullReconstructionSelector().select([2, 1], [[0, 3], [5, 0]], n_select)
    assert chosen.positions.tolist() == expected


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(("n", "d"), [(2, 2), (5, 3), (6, 6), (7, 4)])
def test_the_distance_equals_that_of_trying_every_face(seed, n, d):
    query, candidates = random_pool(seed, n, d)
    found = EXACT.reconstruct(query, candidates)
    assert found.distance == pytest.approx(nearest_in_hull(query, candidates), abs=1e-9)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("n", "d"), [(1, 1), (3, 1), (40, 2), (50, 10), (200, 64), (30, 100)])
def test_the_conditions_of_optimality_hold(seed, n, d):
    query, candidates = random_pool(seed, n, d)
    found = EXACT.reconstruct(query, candidates)
    weights, units = found.weights, unit(candidates)
    assert ((weights == 0) | (weights > 1e-9)).all()  # all or nothing is taken away
    assert weights.sum() == pytest.approx(1, abs=1e-15)
    residual = unit(query) - weights @ units
    assert found.distance == pytest.approx(np.linalg.norm(residual), abs=1e-12)
    scores = units @ residual
    # No vertex lies further along the residual than the point reached, and those with
    # weight lie as far: 2 Σ w_i (max score - score_i) is the duality gap.
    assert 2 * weights @ (scores.max() - scores) < 1e-11
    assert found.duality_gap < 1e-11


@pytest.mark.parametrize("seed", range(5))
def test_the_gap_bounds_what_is_missing(seed):
    query, candidates = random_pool(seed, 60, 12)
    best = EXACT.reconstruct(query, candidates).distance
    for max_iterations in (1, 2, 5, 10, 30):
        early = HullReconstructionSelector(max_iterations=max_iterations, tolerance=1e-9)
        found = early.reconstruct(query, candidates)
        assert found.n_iterations == max_iterations
        assert 0 <= found.distance**2 - best**2 <= found.duality_gap
        scores = unit(candidates) @ (unit(query) - found.weights @ unit(candidates))
        gap = 2 * found.weights @ (scores.max() - scores)
        assert found.duality_gap == pytest.approx(gap)


def test_a_tolerance_below_rounding_ends_in_time():
    selector = HullReconstructionSelector(tolerance=1e-300, max_iterations=1000)
    for seed in range(20):
        query, candidates = random_pool(seed, 20, 5)
        candidates[3] = query if seed % 2 else candidates[3]
        found = selector.reconstruct(query, candidates)
        assert found.n_iterations <= 1000
        assert found.duality_gap < 1e-4


@pytest.mark.parametrize("max_support", [1, 2, 5])
def test_no_more_candidates_than_asked_for_have_weight(max_support):
    query, candidates = random_pool(1, 100, 30)
    found = EXACT.reconstruct(query, candidates, max_support=max_support)
    assert np.count_nonzero(found.weights) == max_support
    assert found.duality_gap > 1e-4
    assert len(set(EXACT.select(query, candidates, max_support).positions)) <= max_support


@pytest.mark.parametrize("scale", [1.0, 7.0, 2.0**-80])
def test_a_query_among_the_candidates_is_rebuilt_from_itself(scale):
    query, candidates = random_pool(2, 50, 8)
    candidates[17] = scale * query
    found = EXACT.reconstruct(query, candidates)
    assert found.weights[17] == pytest.approx(1)
    assert found.distance < 1e-6
    chosen = HullReconstructionSelector().select(query, candidates, 6)
    assert chosen.positions.tolist() == [17] * 6


def test_one_candidate_has_all_weight_even_opposite():
    found = EXACT.reconstruct([1.0, 0], [[-2.0, 0]])
    assert found.weights.tolist() == [1.0]
    assert (found.distance, found.duality_gap, found.n_iterations) == (2.0, 0.0, 0)
    chosen = HullReconstructionSelector().select([1.0, 0], [[-2.0, 0]], 3)
    assert chosen.positions.tolist() == [0, 0, 0]


def test_an_empty_pool_has_no_weights():
    found = EXACT.reconstruct([1.0, 0], [])
    assert found.weights.shape == (0,)
    assert (found.distance, found.duality_gap) == (np.inf, 0.0)


@pytest.mark.parametrize("d", [2, 16, 384])
@pytest.mark.parametrize("seed", range(5))
def test_copies_share_no_weight_with_the_first(seed, d):
    query, candidates = random_pool(seed, 20, d)
    labels = np.random.default_rng(seed).permutation(np.arange(60) % 20)
    first = [labels.tolist().index(label) for label in range(20)]
    scales = np.where(np.arange(60) % 2, 1.0, 3.0)  # their unit vectors differ by rounding
    many = EXACT.reconstruct(query, candidates[labels] * scales[:, None])
    alone = EXACT.reconstruct(query, candidates)
    assert set(np.flatnonzero(many.weights)) <= set(first)
    np.testing.assert_allclose(many.weights[first], alone.weights, atol=1e-5)


@pytest.mark.parametrize("n_select", [2, 3, 5, 8, 20, 50])
def test_the_counts_equal_those_of_trying_every_change(n_select):
    for seed in range(10):
        query, candidates = random_pool(seed, 60, 30)
        weights = (
            HullReconstructionSelector()
            .reconstruct(query, candidates, max_support=n_select)
            .weights
        )
        chosen = HullReconstructionSelector().select(query, candidates, n_select)
        counts = np.bincount(chosen.positions, minlength=60)
        expected = integer_counts(query, candidates, weights, n_select)
        assert counts.tolist() == expected.tolist()


def test_nearly_all_choices_are_those_of_plain_frank_wolfe():
    shared, n_select = [], 20
    for seed in range(20):
        query, candidates = random_pool(seed, 100, 60)
        chosen = HullReconstructionSelector().select(query, candidates, n_select)
        counts = np.bincount(chosen.positions, minlength=100)
        weights = plain_frank_wolfe(query, candidates, n_select)
        plain = integer_counts(query, candidates, weights, n_select)
        shared.append(np.minimum(counts, plain).sum() / n_select)
    assert np.mean(shared) > 0.9


@pytest.mark.parametrize("seed", range(5))
def test_repeats_stand_in_one_run_by_falling_weight(seed):
    query, candidates = random_pool(seed, 80, 20)
    chosen = HullReconstructionSelector().select(query, candidates, 40).positions
    runs = chosen[np.flatnonzero(np.diff(chosen, prepend=-1))]
    assert len(runs) == len(set(runs.tolist())) > 5
    weights = HullReconstructionSelector().reconstruct(query, candidates, max_support=40).weights
    assert (np.diff(weights[runs].round(6)) <= 0).all()


@pytest.mark.parametrize("seed", range(5))
def test_permuting_the_pool_permutes_the_positions(seed):
    query, candidates = random_pool(seed, 40, 12)
    order = np.random.default_rng(seed).permutation(40)
    chosen = EXACT.select(query, candidates, 15).positions
    shuffled = EXACT.select(query, candidates[order], 15).positions
    assert order[shuffled].tolist() == chosen.tolist()


def test_odd_numbers_give_weights_all_the_same():
    rng = np.random.default_rng(4)
    numbers = [0.0, -0.0, 1.0, -1.0, 5e-324, 1e-310, 1e-200, 1e200, 1.7e308]
    for _ in range(300):
        n, d = rng.integers(1, 9), rng.integers(1, 5)
        rows = rng.choice(numbers, (n + 1, d))
        rows[(rows == 0).all(axis=1), 0] = 1.0
        found = HullReconstructionSelector().reconstruct(rows[0], rows[1:])
        assert (found.weights >= 0).all()
        assert found.weights.sum() == pytest.approx(1)
        assert 0 <= found.distance <= 2 + 1e-12
        assert 0 <= found.duality_gap <= 1e-4
        assert len(HullReconstructionSelector().select(rows[0], rows[1:], 5)) == 5


@pytest.mark.parametrize(
    ("setting", "value"),
    [("tolerance", 0), ("tolerance", np.nan), ("max_iterations", 0), ("max_iterations", 1.5)],
)
def test_refuses_settings_out_of_range(setting, value):
    with pytest.raises(InvalidInputError, match=setting):
        HullReconstructionSelector(**{setting: value})
