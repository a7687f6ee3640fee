"""HullFT, NN-F and uncertainty sampling, against computing everything anew."""

import itertools

import numpy as np
import pytest

from benchmarks.language_modeling.selectors import (
    HullReconstructionSelector,
    RepeatedNeighborSelector,
    UncertaintySamplingSelector,
)
from sift_core import LinearKernel, NearestNeighborSelector, Selector, posterior_variances
from sift_core.types import StopReason
from tests.selection.oracle import KERNELS, dense_variance, random_pool, under, unit

SELECTORS = [HullReconstructionSelector, RepeatedNeighborSelector, UncertaintySamplingSelector]
EXACT = HullReconstructionSelector(tolerance=1e-12, max_iterations=100_000)


def pool_on_one_side(seed, n, d):
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


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("n", "d"), [(2, 2), (5, 3), (6, 6), (7, 4)])
def test_the_distance_equals_that_of_trying_every_face(seed, n, d):
    query, candidates = pool_on_one_side(seed, n, d)
    found = EXACT.reconstruct(query, candidates)
    assert found.distance == pytest.approx(nearest_in_hull(query, candidates), abs=1e-9)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("n", "d"), [(3, 1), (40, 2), (200, 64), (30, 100)])
def test_the_conditions_of_optimality_hold(seed, n, d):
    query, candidates = pool_on_one_side(seed, n, d)
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


@pytest.mark.parametrize("seed", range(3))
def test_the_gap_bounds_what_is_missing(seed):
    query, candidates = pool_on_one_side(seed, 60, 12)
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
        query, candidates = pool_on_one_side(seed, 20, 5)
        candidates[3] = query if seed % 2 else candidates[3]
        found = selector.reconstruct(query, candidates)
        assert found.n_iterations <= 1000
        assert found.duality_gap < 1e-4


@pytest.mark.parametrize("max_support", [1, 2, 5])
def test_no_more_candidates_than_asked_for_have_weight(max_support):
    query, candidates = pool_on_one_side(1, 100, 30)
    found = EXACT.reconstruct(query, candidates, max_support=max_support)
    assert np.count_nonzero(found.weights) == max_support
    assert found.duality_gap > 1e-4
    assert len(set(EXACT.select(query, candidates, max_support).positions)) <= max_support


def test_a_query_among_the_candidates_is_rebuilt_from_itself():
    query, candidates = pool_on_one_side(2, 50, 8)
    candidates[17] = 7.0 * query
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
@pytest.mark.parametrize("seed", range(2))
def test_copies_share_no_weight_with_the_first(seed, d):
    query, candidates = pool_on_one_side(seed, 20, d)
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
        query, candidates = pool_on_one_side(seed, 60, 30)
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
        query, candidates = pool_on_one_side(seed, 100, 60)
        chosen = HullReconstructionSelector().select(query, candidates, n_select)
        counts = np.bincount(chosen.positions, minlength=100)
        weights = plain_frank_wolfe(query, candidates, n_select)
        plain = integer_counts(query, candidates, weights, n_select)
        shared.append(np.minimum(counts, plain).sum() / n_select)
    assert np.mean(shared) > 0.9


@pytest.mark.parametrize("seed", range(3))
def test_repeats_stand_in_one_run_by_falling_weight(seed):
    query, candidates = pool_on_one_side(seed, 80, 20)
    chosen = HullReconstructionSelector().select(query, candidates, 40).positions
    runs = chosen[np.flatnonzero(np.diff(chosen, prepend=-1))]
    assert len(runs) == len(set(runs.tolist())) > 5
    weights = HullReconstructionSelector().reconstruct(query, candidates, max_support=40).weights
    assert (np.diff(weights[runs].round(6)) <= 0).all()


def test_the_failure_mode_by_hand():
    # Linear, λ = .01, cosine .8 with the nearest; n looks at it act as one with λ / n.
    chosen = RepeatedNeighborSelector().select([1, 0], [[3, 4], [4, 3]], 3)
    assert chosen.positions.tolist() == [1, 1, 1]
    expected = [1, *(1 - 0.64 / (1 + 0.01 / n) for n in (1, 2, 3))]
    assert chosen.variances == pytest.approx(expected)


def test_the_failure_mode_repeats_what_plain_retrieval_puts_first():
    for seed in range(10):
        rng = np.random.default_rng(seed)
        query, candidates = rng.standard_normal(5), rng.standard_normal((4, 5))
        candidates = candidates[rng.permutation(np.arange(20) % 4)]  # copies: ties
        for relevance in (None, rng.standard_normal(20)):
            asked = {"relevance": relevance}
            first = NearestNeighborSelector().select(query, candidates, 1, **asked).positions
            chosen = RepeatedNeighborSelector().select(query, candidates, 7, **asked)
            assert chosen.positions.tolist() == first.tolist() * 7


def test_uncertainty_sampling_by_hand():
    # Linear, λ = 1: after x_0 = e_1, σ² = 1/2 for both copies of e_1 and 1 for e_2; then all
    # have 1/2 left. The query e_1 learns from looks at e_1 alone: 1, 1/2, 1/2, 1/3.
    candidates = [[1.0, 0], [3, 0], [0, 2]]
    chosen = UncertaintySamplingSelector(**under(1.0)).select([1, 0], candidates, 5)
    assert chosen.positions.tolist() == [0, 2, 1]
    assert chosen.variances == pytest.approx([1, 1 / 2, 1 / 2, 1 / 3])
    assert chosen.stop_reason is StopReason.POOL_EXHAUSTED
    again = UncertaintySamplingSelector(**under(1.0), allow_repeats=True)
    chosen = again.select([1, 0], candidates, 5)
    # After another look at e_1 its copies have 1/3 left and e_2 1/2; then all 1/3 again.
    assert chosen.positions.tolist() == [0, 2, 0, 2, 0]
    assert chosen.stop_reason is StopReason.N_SELECT


@pytest.mark.parametrize("allow_repeats", [True, False], ids=["repeats", "no repeats"])
@pytest.mark.parametrize("noise", [1e-6, 0.01, 1.0])
@pytest.mark.parametrize("kernel", [*KERNELS.values(), LinearKernel(normalize=False)])
def test_uncertainty_sampling_equals_the_dense_oracle(kernel, noise, allow_repeats):
    query, candidates = random_pool(3, n=9, d=4)
    expected = []
    for _ in range(8):
        own = [dense_variance(kernel, noise, x, candidates[expected]) for x in candidates]
        for taken in [] if allow_repeats else expected:
            own[taken] = -1.0
        # The lowest of those that tie: on unit vectors all have variance 1 at first.
        expected.append(int(np.argmax(np.array(own) >= max(own) * (1 - 1e-12))))
    selector = UncertaintySamplingSelector(**under(noise, kernel), allow_repeats=allow_repeats)
    assert selector.select(query, candidates, 8).positions.tolist() == expected


@pytest.mark.parametrize("allow_repeats", [False, True])
def test_uncertainty_sampling_of_candidates_without_variance(allow_repeats):
    selector = UncertaintySamplingSelector(
        kernel=LinearKernel(normalize=False), allow_repeats=allow_repeats
    )
    chosen = selector.select([1.0, 0], np.zeros((2, 2)), 3)
    assert chosen.positions.tolist() == ([0, 0, 0] if allow_repeats else [0, 1])


@pytest.mark.parametrize(
    "selector", [*SELECTORS, lambda: UncertaintySamplingSelector(allow_repeats=True)]
)
def test_what_all_three_promise(selector):
    selector = selector()
    assert isinstance(selector, Selector)
    query, candidates = random_pool(7, n=15, d=6)
    chosen = selector.select(query, candidates, 6)
    expected = posterior_variances(query, candidates[chosen.positions])
    np.testing.assert_allclose(chosen.variances, expected, rtol=1e-12)
    assert len(chosen) == 6
    none = selector.select(query, candidates, 0)
    assert (len(none), none.stop_reason) == (0, StopReason.N_SELECT)
    assert none.positions.dtype.kind == "i"
    empty = selector.select(query, candidates[:0], 5)
    assert (len(empty), empty.stop_reason) == (0, StopReason.POOL_EXHAUSTED)
