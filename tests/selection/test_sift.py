from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from sift_core.errors import InvalidInputError, NumericalError
from sift_core.protocols import Selector
from sift_core.selection import (
    LinearKernel,
    NearestNeighborSelector,
    RBFKernel,
    SIFTSelector,
    select,
)
from sift_core.types import StopReason

KERNELS = {"linear": LinearKernel(), "rbf": RBFKernel()}


def pool(seed, n=30, d=24):
    rng = np.random.default_rng(seed)
    return rng.standard_normal(d), rng.standard_normal((n, d)) + 0.4


@pytest.mark.parametrize("allow_repeats", [True, False], ids=["repeats", "no repeats"])
@pytest.mark.parametrize("noise_variance", [1e-6, 1e-4, 1e-2, 1.0, 1e2])
@pytest.mark.parametrize("kernel", KERNELS)
def test_equals_the_dense_oracle(greedy_oracle, kernel, noise_variance, allow_repeats):
    for seed in range(3):
        query, candidates = pool(seed)
        positions, variances = greedy_oracle(
            kernel, noise_variance, query, candidates, 12, allow_repeats
        )
        chosen = select(
            query,
            candidates,
            12,
            kernel=KERNELS[kernel],
            noise_variance=noise_variance,
            allow_repeats=allow_repeats,
        )
        assert chosen.positions.tolist() == positions
        np.testing.assert_allclose(chosen.variances, variances, rtol=0, atol=1e-10)
        np.testing.assert_allclose(chosen.gains, -np.diff(variances), rtol=0, atol=1e-10)


@pytest.mark.parametrize("kernel", KERNELS)
def test_equals_the_dense_oracle_for_more_steps_than_the_first_factor_holds(greedy_oracle, kernel):
    query, candidates = pool(5, n=20, d=6)
    positions, variances = greedy_oracle(kernel, 0.1, query, candidates, 40, True)
    chosen = select(
        query, candidates, 40, kernel=KERNELS[kernel], noise_variance=0.1, allow_repeats=True
    )
    assert chosen.positions.tolist() == positions
    np.testing.assert_allclose(chosen.variances, variances, rtol=0, atol=1e-10)


@pytest.mark.parametrize("length_scale", [0.2, 1.0, 3.0])
def test_the_length_scale_is_a_distance_on_the_sphere(length_scale):
    # |x - x'|² = 2 for orthogonal unit vectors: k = exp(-2 / (2 l²)) = exp(-1 / l²), and one
    # observation with λ = 1 leaves 1 - k² / 2.
    chosen = select(
        [1, 0], [[0, 1]], 1, kernel=RBFKernel(length_scale=length_scale), noise_variance=1
    )
    assert chosen.variances[1] == pytest.approx(1 - np.exp(-1 / length_scale**2) ** 2 / 2)


def test_one_observation_by_hand():
    # c = 0.6, λ = 0.5: σ² = 1 - c² / (1 + λ) = 1 - 0.36 / 1.5 = 0.76
    chosen = select([1.0, 0.0], [[0.6, 0.8]], 1, kernel=LinearKernel(), noise_variance=0.5)
    assert chosen.variances == pytest.approx([1.0, 0.76])
    assert chosen.gains == pytest.approx([0.24])
    assert chosen.standard_deviation == pytest.approx(0.76**0.5)


def test_the_same_point_twice_by_hand():
    # Paper, proofs, "2nd point": ψ({x₁, x₁}) = 2k² / (2 + λ) = 2 · 0.36 / 2.5 = 0.288
    chosen = select(
        [1.0, 0.0],
        [[0.6, 0.8]],
        2,
        kernel=LinearKernel(),
        noise_variance=0.5,
        allow_repeats=True,
    )
    assert chosen.positions.tolist() == [0, 0]
    assert chosen.variances == pytest.approx([1.0, 0.76, 0.712])


def test_two_orthogonal_points_by_hand():
    # Paper, proofs, "2nd point": ψ({x₁, x}) = (k₁² + k²) / (1 + λ) = (0.64 + 0.36) / 1.5 = 2/3,
    # of which the first point has 0.64 / 1.5 = 0.42667.
    chosen = select([0.6, 0.8], np.eye(2), 2, kernel=LinearKernel(), noise_variance=0.5)
    assert chosen.positions.tolist() == [1, 0]
    assert chosen.variances == pytest.approx([1.0, 1 - 0.64 / 1.5, 1 / 3])


@pytest.mark.parametrize("noise_variance", [0.01, 0.5, 2.0, 100.0])
@pytest.mark.parametrize(
    ("ratio", "second"), [(0.999, 0), (1.001, 1)], ids=["below: repeat", "above: new"]
)
def test_an_orthogonal_point_comes_second_beyond_the_papers_threshold(
    noise_variance, ratio, second
):
    # Preferred over x₁ again if and only if k² > λ / (2 + λ) · k₁². With λ = 0.5 and k₁ = 0.6
    # that is k² > 0.2 · 0.36 = 0.072.
    k_1 = 0.6
    k_2 = ratio * (noise_variance / (2 + noise_variance)) ** 0.5 * k_1
    query = [k_1, k_2, (1 - k_1**2 - k_2**2) ** 0.5]
    chosen = select(
        query,
        np.eye(3)[:2],
        2,
        kernel=LinearKernel(),
        noise_variance=noise_variance,
        allow_repeats=True,
    )
    assert chosen.positions.tolist() == [0, second]


def test_a_large_noise_variance_repeats_the_nearest():
    # λ → ∞: c(λ) = λ / (2 + λ) → 1, so nothing with a smaller |cos| can overtake.
    chosen = select(
        [0.8, 0.6], np.eye(2), 10, kernel=LinearKernel(), noise_variance=1e4, allow_repeats=True
    )
    assert chosen.positions.tolist() == [0] * 10


def test_a_small_noise_variance_prefers_anything_new():
    # λ → 0: c(λ) → 0, so even k = 0.05 beats a second look at k₁ = 0.99.
    chosen = select(
        [0.99, 0.05], np.eye(2), 2, kernel=LinearKernel(), noise_variance=1e-6, allow_repeats=True
    )
    assert chosen.positions.tolist() == [0, 1]


@pytest.mark.parametrize("noise_variance", [1e-6, 0.01, 1.0, 1e4])
def test_the_linear_kernel_picks_the_largest_absolute_cosine_first(noise_variance):
    query, candidates = pool(11)
    cosines = candidates @ query / np.linalg.norm(candidates, axis=1)
    chosen = select(query, candidates, 1, kernel=LinearKernel(), noise_variance=noise_variance)
    assert chosen.positions.tolist() == [np.argmax(np.abs(cosines))]


def test_an_opposite_vector_informs_the_linear_kernel_but_not_the_rbf():
    candidates = [[0.6, 0.8], [-0.8, 0.6]]  # cosines 0.6 and -0.8
    assert select([1, 0], candidates, 1, kernel=LinearKernel()).positions.tolist() == [1]
    assert select([1, 0], candidates, 1, kernel=RBFKernel()).positions.tolist() == [0]


def test_nearest_neighbors_are_insufficient_and_sift_is_not():
    # Paper, proposition "Insufficiency of Nearest Neighbor Retrieval": every basis vector of
    # R⁵ many times over, query (2, 1, 1, 1, 1) / √8. The nearest are all e₁, which leaves
    # 1 - (4 / 8) · n / (n + λ) > 0.5 for ever. SIFT takes the n / 5 copies of each in turn:
    # λ / (n / 5 + λ), which tends to 0.
    d, n, noise_variance = 5, 200, 0.01
    candidates = np.repeat(np.eye(d), n, axis=0)
    query = np.array([2.0, 1, 1, 1, 1])
    settings = {"kernel": LinearKernel(), "noise_variance": noise_variance}
    nearest = NearestNeighborSelector(**settings).select(query, candidates, n)
    sift = SIFTSelector(**settings).select(query, candidates, n)
    assert set((nearest.positions // n).tolist()) == {0}
    assert nearest.variances[-1] == pytest.approx(1 - 0.5 * n / (n + noise_variance))
    assert (nearest.variances >= 0.5).all()
    assert set((sift.positions[:d] // n).tolist()) == set(range(d))
    assert sift.variances[-1] < 1.1 * noise_variance / (n / d)


# Stopping. Four orthogonal candidates, each with cosine 1/2, and λ = 3: each choice lowers σ²
# by 0.25 / 4 = 0.0625 exactly, so σ² = 1, 0.9375, 0.875, 0.8125, 0.75.
QUARTERS = ([1.0, 1, 1, 1], np.eye(4))


def stop(n_select=4, **settings):
    selector = SIFTSelector(kernel=LinearKernel(), noise_variance=3.0, **settings)
    return selector.select(*QUARTERS, n_select)


def test_no_stop_by_hand():
    chosen = stop()
    assert chosen.variances.tolist() == [1, 0.9375, 0.875, 0.8125, 0.75]
    assert chosen.gains.tolist() == [0.0625] * 4
    assert chosen.stop_reason is StopReason.N_SELECT


@pytest.mark.parametrize(
    ("alpha", "n_chosen"),
    [
        # σ₁ = √0.9375 = 0.968, σ₂ = √0.875 = 0.935, σ₃ = √0.8125 = 0.901, σ₄ = √0.75 = 0.866
        (1.04, 0),  # 1 / (1.04 · 1) = 0.962 < σ₁: not even the first step
        (1.03, 1),  # 1 / 1.03 = 0.971 >= σ₁, 1 / 2.06 = 0.485 < σ₂
        (0.54, 1),  # 1 / 1.08 = 0.926 < σ₂
        (0.53, 2),  # 1 / 1.06 = 0.943 >= σ₂, 1 / 1.59 = 0.629 < σ₃
        (0.36, 3),  # 1 / 1.08 = 0.926 >= σ₃, 1 / 1.44 = 0.694 < σ₄
    ],
)
def test_adaptive_stop_by_hand(alpha, n_chosen):
    chosen = stop(alpha=alpha)
    assert len(chosen) == n_chosen
    assert chosen.variances.tolist() == [1, 0.9375, 0.875, 0.8125, 0.75][: n_chosen + 1]
    assert chosen.stop_reason is StopReason.ALPHA


def test_adaptive_stop_does_not_stop_a_query_that_pays():
    # 1 / (0.28 · 4) = 0.893 >= σ₄ = 0.866
    assert stop(alpha=0.28).stop_reason is StopReason.N_SELECT


def test_adaptive_stop_takes_a_step_that_just_pays():
    # k(q, q) = 1, k(q, x) = 1.5, k(x, x) = 2.25, λ = 0.75: σ²₁ = 1 - 2.25 / 3 = 0.25, and
    # σ₁ = 0.5 is not greater than 1 / (2 · 1).
    kernel = LinearKernel(normalize=False)
    chosen = select([1.0], [[1.5]], 1, kernel=kernel, noise_variance=0.75, alpha=2.0)
    assert chosen.positions.tolist() == [0]
    assert chosen.stop_reason is StopReason.N_SELECT


@pytest.mark.parametrize(("max_variance", "n_chosen"), [(1.0, 0), (0.9, 2), (0.875, 2), (0.76, 4)])
def test_stops_as_soon_as_the_variance_is_small_enough(max_variance, n_chosen):
    chosen = stop(n_select=9, max_variance=max_variance, allow_repeats=True)
    assert len(chosen) == n_chosen
    assert chosen.stop_reason is StopReason.MAX_VARIANCE
    assert chosen.variances[-1] <= max_variance


def test_stops_before_a_choice_that_gains_too_little():
    # q = (4, 2, 2, 1) / 5 and λ = 3: gains 0.16, 0.04, 0.04, 0.01.
    selector = SIFTSelector(kernel=LinearKernel(), noise_variance=3.0, min_gain=0.02)
    chosen = selector.select([4.0, 2, 2, 1], np.eye(4), 4)
    assert chosen.positions.tolist() == [0, 1, 2]
    assert chosen.gains == pytest.approx([0.16, 0.04, 0.04])
    assert chosen.stop_reason is StopReason.MIN_GAIN


def test_takes_a_choice_that_gains_exactly_the_minimum():
    assert len(stop(min_gain=0.0625)) == 4
    assert len(stop(min_gain=0.0626)) == 0


def test_enough_variance_is_reported_before_an_exhausted_pool():
    assert stop(n_select=9, max_variance=0.75).stop_reason is StopReason.MAX_VARIANCE
    assert stop(n_select=9).stop_reason is StopReason.POOL_EXHAUSTED


@pytest.mark.parametrize("allow_repeats", [True, False])
def test_more_than_the_pool_holds(allow_repeats):
    query, candidates = pool(2, n=5)
    chosen = select(query, candidates, 12, allow_repeats=allow_repeats)
    assert len(chosen) == (12 if allow_repeats else 5)
    assert set(chosen.positions.tolist()) <= set(range(5))
    expected = StopReason.N_SELECT if allow_repeats else StopReason.POOL_EXHAUSTED
    assert chosen.stop_reason is expected


@pytest.mark.parametrize("allow_repeats", [True, False])
@pytest.mark.parametrize("empty", [[], np.empty((0, 24)), np.empty((0, 3), dtype=np.float32)])
def test_an_empty_pool_is_exhausted_at_once(empty, allow_repeats):
    chosen = select(np.ones(24), empty, 3, allow_repeats=allow_repeats)
    assert chosen.positions.shape == (0,)
    assert chosen.variances.tolist() == pytest.approx([1.0])
    assert chosen.stop_reason is StopReason.POOL_EXHAUSTED


def test_nothing_is_chosen_when_nothing_is_asked_for():
    chosen = select(*pool(1), 0)
    assert chosen.positions.tolist() == []
    assert chosen.positions.dtype == np.intp
    assert chosen.variances == pytest.approx([1.0])
    assert chosen.stop_reason is StopReason.N_SELECT


@pytest.mark.parametrize("kernel", KERNELS)
def test_one_dimension(kernel):
    chosen = select([2.0], [[3.0], [-1.0]], 2, kernel=KERNELS[kernel], noise_variance=1.0)
    assert chosen.positions.tolist() == [0, 1]
    # After cos = 1: 1 - 1 / 2. The linear kernel ties, and then x = -x₁ tells the same again.
    assert chosen.variances[1] == pytest.approx(0.5)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_query_may_be_a_candidate(kernel):
    query, candidates = pool(7)
    candidates[4] = query
    chosen = select(query, candidates, 3, kernel=KERNELS[kernel], noise_variance=1e-12)
    assert chosen.positions[0] == 4
    assert chosen.variances[1:] == pytest.approx([0, 0, 0], abs=1e-11)
    assert (chosen.variances >= 0).all()


@pytest.mark.parametrize("kernel", KERNELS)
def test_ties_go_to_the_lowest_position(kernel):
    # e₂, e₃ and e₄ are equally far from the query by symmetry.
    candidates = np.eye(4)[[3, 1, 2, 0]]
    chosen = select([2.0, 1, 1, 1], candidates, 4, kernel=KERNELS[kernel], noise_variance=0.1)
    assert chosen.positions.tolist() == [3, 0, 1, 2]


@pytest.mark.parametrize("allow_repeats", [True, False])
@pytest.mark.parametrize("noise_variance", [1e-12, 1e-6, 1e-2, 1.0, 1e4])
@pytest.mark.parametrize("kernel", KERNELS)
def test_copies_are_chosen_from_the_lowest_position_up(kernel, noise_variance, allow_repeats):
    # BLAS sums the last rows of a matrix in another order than the first, so that copies
    # need not tie bit for bit unless the selector sees to it. Small λ amplifies that.
    for seed in range(12):
        rng = np.random.default_rng(seed)
        d = int(rng.choice([3, 100, 768]))
        originals = rng.standard_normal((5, d))
        labels = rng.permutation(np.arange(int(rng.integers(10, 200))) % 5)
        chosen = select(
            rng.standard_normal(d),
            originals[labels],
            30,
            kernel=KERNELS[kernel],
            noise_variance=noise_variance,
            allow_repeats=allow_repeats,
        ).positions
        for label in range(5):
            copies = np.flatnonzero(labels == label).tolist()
            picked = [int(i) for i in chosen if labels[i] == label]
            if allow_repeats:
                assert set(picked) <= {copies[0]}
            else:
                assert picked == copies[: len(picked)]


def test_a_negative_zero_makes_no_difference_between_copies():
    for seed in range(12):
        rng = np.random.default_rng(seed)
        candidates = np.tile(rng.standard_normal(100), (203, 1))
        candidates[:, 0] = np.where(np.arange(203) < 202, 0.0, -0.0)  # the last sums differently
        query = rng.standard_normal(100)
        settings = {"kernel": LinearKernel(), "noise_variance": 1e-9, "allow_repeats": True}
        assert set(select(query, candidates, 5, **settings).positions.tolist()) == {0}


def test_vectors_that_tie_only_up_to_rounding_count_as_tied():
    # The same numbers in another order: cosines with (1, ..., 1) are equal but for the order
    # of summation.
    for seed in range(12):
        rng = np.random.default_rng(seed)
        numbers = rng.random(101)
        candidates = np.array([rng.permutation(numbers) for _ in range(50)])
        for kernel in KERNELS.values():
            assert select(np.ones(101), candidates, 1, kernel=kernel).positions.tolist() == [0]


def test_candidates_that_tell_nothing_are_chosen_in_order():
    chosen = select([0, 0, 0, 1.0], np.eye(4)[:3], 3, kernel=LinearKernel())
    assert chosen.positions.tolist() == [0, 1, 2]
    assert chosen.variances.tolist() == [1, 1, 1, 1]


def test_inputs_are_not_modified():
    query, candidates = pool(3)
    before = query.copy(), candidates.copy()
    query.flags.writeable = candidates.flags.writeable = False
    for kernel in (*KERNELS.values(), LinearKernel(normalize=False)):
        select(query, candidates, 8, kernel=kernel, allow_repeats=True)
    np.testing.assert_array_equal(query, before[0])
    np.testing.assert_array_equal(candidates, before[1])


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    "convert",
    [
        np.float64,
        np.float32,
        np.float16,
        np.int16,
        np.uint8,
        np.ndarray.tolist,
        np.asfortranarray,
        lambda a: np.repeat(a, 2, axis=0)[::2],
    ],
    ids=["float64", "float32", "float16", "int16", "uint8", "list", "fortran", "strided"],
)
def test_numbers_of_any_type_give_the_same_choice(kernel, convert):
    query, candidates = (np.abs(np.rint(20 * a)) for a in pool(4))  # exact in every type
    settings = {"kernel": KERNELS[kernel], "noise_variance": 0.05}
    expected = select(query, candidates, 6, **settings)
    chosen = select(convert(query), convert(candidates), 6, **settings)
    assert chosen.positions.tolist() == expected.positions.tolist()
    np.testing.assert_allclose(chosen.variances, expected.variances, rtol=0, atol=1e-12)
    assert chosen.variances.dtype == np.float64


def test_repeated_calls_do_not_remember_one_another():
    selector = SIFTSelector.for_fine_tuning()
    first = selector.select(*pool(1), 5)
    selector.select(*pool(2), 5)
    again = selector.select(*pool(1), 5)
    np.testing.assert_array_equal(first.positions, again.positions)
    np.testing.assert_array_equal(first.variances, again.variances)


@pytest.mark.parametrize("kernel", KERNELS)
def test_eight_threads_on_one_selector_equal_one(kernel):
    selector = SIFTSelector(kernel=KERNELS[kernel], allow_repeats=True)
    pools = [pool(seed, n=60) for seed in range(64)]
    serial = [selector.select(*p, 20) for p in pools]
    with ThreadPoolExecutor(8) as executor:
        parallel = list(executor.map(lambda p: selector.select(*p, 20), pools))
    for one, other in zip(serial, parallel, strict=True):
        np.testing.assert_array_equal(one.positions, other.positions)
        np.testing.assert_array_equal(one.variances, other.variances)


class GivenCovariance:
    """A kernel that looks up a matrix; embeddings hold row numbers. Answers with views."""

    def __init__(self, covariance):
        self.covariance = covariance

    def features(self, embeddings):
        return embeddings

    def diagonal(self, features):
        return np.diagonal(self.covariance)[: len(features)]

    def column(self, features, point):
        return self.covariance[int(point[0])][: len(features)]


def test_a_kernel_of_ones_own_may_answer_with_its_own_arrays():
    rng = np.random.default_rng(0)
    root = rng.standard_normal((6, 6))
    covariance = root @ root.T
    kernel = GivenCovariance(covariance.copy())
    chosen = select([5.0], np.arange(6.0)[:, None], 4, kernel=kernel, allow_repeats=True)
    np.testing.assert_array_equal(kernel.covariance, covariance)
    # Its features equal its prior, so the same through explicit features with a linear kernel.
    plain = LinearKernel(normalize=False)
    expected = select(root[5], root, 4, kernel=plain, allow_repeats=True)
    assert chosen.positions.tolist() == expected.positions.tolist()


def test_the_selector_follows_the_protocol():
    assert isinstance(SIFTSelector(), Selector)
    assert isinstance(NearestNeighborSelector(), Selector)


def test_the_function_and_the_class_have_the_same_defaults():
    query, candidates = pool(9)
    by_function = select(query, candidates, 10)
    by_class = SIFTSelector().select(query, candidates, 10)
    np.testing.assert_array_equal(by_function.positions, by_class.positions)
    np.testing.assert_array_equal(by_function.variances, by_class.variances)


def test_the_function_passes_every_setting_on():
    query, candidates = pool(9)
    settings = {
        "kernel": LinearKernel(),
        "noise_variance": 0.7,
        "allow_repeats": True,
        "alpha": 0.5,
    }
    by_function = select(query, candidates, 10, **settings)
    assert by_function.stop_reason is StopReason.ALPHA
    by_class = SIFTSelector(**settings).select(query, candidates, 10)
    np.testing.assert_array_equal(by_function.positions, by_class.positions)
    np.testing.assert_array_equal(by_function.variances, by_class.variances)


def test_the_fine_tuning_preset_is_the_papers_setting():
    preset = SIFTSelector.for_fine_tuning()
    assert preset == SIFTSelector(kernel=LinearKernel(), noise_variance=0.01, allow_repeats=True)
    assert SIFTSelector.for_fine_tuning(noise_variance=0.1).noise_variance == 0.1


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, SIFTSelector()),
        ({"kernel": "rbf", "length_scale": 0.7}, SIFTSelector(kernel=RBFKernel(length_scale=0.7))),
        ({"kernel": "linear"}, SIFTSelector(kernel=LinearKernel(), noise_variance=0.01)),
        (
            {"kernel": "linear", "noise_variance": 0.5, "allow_repeats": True, "alpha": 2.0},
            SIFTSelector(kernel=LinearKernel(), noise_variance=0.5, allow_repeats=True, alpha=2.0),
        ),
    ],
    ids=["defaults", "length scale", "linear", "everything"],
)
def test_plain_settings_make_the_same_selector(settings, expected):
    assert SIFTSelector.from_settings(**settings) == expected


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kernel": "cosine"}, "`kernel` must be 'rbf' or 'linear', got 'cosine'"),
        ({"kernel": LinearKernel()}, "`kernel` must be 'rbf' or 'linear'"),
        ({"kernel": "linear", "length_scale": 1.0}, "`length_scale` has no effect"),
        ({"length_scale": -1.0}, "`length_scale` must be"),
        ({"noise_variance": 0}, "`noise_variance` must be"),
        ({"alpha": -1}, "`alpha` must be"),
    ],
)
def test_plain_settings_are_refused(settings, message):
    with pytest.raises(InvalidInputError, match=message):
        SIFTSelector.from_settings(**settings)


@pytest.mark.parametrize("noise_variance", [0, 0.0, -0.1, np.nan, np.inf, -np.inf])
def test_refuses_a_noise_variance_out_of_range(noise_variance):
    with pytest.raises(InvalidInputError, match="`noise_variance` must be a finite number > 0"):
        SIFTSelector(noise_variance=noise_variance)
    with pytest.raises(InvalidInputError, match="noise_variance"):
        select(*pool(1), 2, noise_variance=noise_variance)


@pytest.mark.parametrize("name", ["alpha", "max_variance", "min_gain"])
@pytest.mark.parametrize("value", [0, -1.0, np.nan])
def test_refuses_a_stop_out_of_range(name, value):
    with pytest.raises(InvalidInputError, match=f"`{name}` must be > 0 or None"):
        SIFTSelector(**{name: value})


@pytest.mark.parametrize("selector", [SIFTSelector(), NearestNeighborSelector()])
@pytest.mark.parametrize("n_select", [-1, 2.5, 3.0, np.nan, "3", None])
def test_refuses_an_n_select_that_is_no_count(selector, n_select):
    with pytest.raises(InvalidInputError, match="`n_select` must be"):
        selector.select(*pool(1), n_select)


@pytest.mark.parametrize("selector", [SIFTSelector(), NearestNeighborSelector()])
def test_takes_a_numpy_integer_for_n_select(selector):
    assert len(selector.select(*pool(1), np.int64(3))) == 3


GOOD = np.ones((3, 4))


@pytest.mark.parametrize("selector", [SIFTSelector(), NearestNeighborSelector()])
@pytest.mark.parametrize(
    ("query", "candidates", "message"),
    [
        ([1, 2, np.nan, 4], GOOD, r"`query` must be finite, got nan at \[2\]"),
        ([1, 2, np.inf, 4], GOOD, r"`query` must be finite, got inf at \[2\]"),
        ([1, 2, 3], GOOD, "must have 3 columns like the query, got 4; were both made by one"),
        ([0, 0, 0, 0], GOOD, "must not be all zero"),
        ([], GOOD, "at least 1 number"),
        ("abcd", GOOD, "`query` must hold real numbers"),
        ([1j, 0, 0, 0], GOOD, "`query` must hold real numbers"),
        (None, GOOD, "`query` must"),
        (GOOD[:1], GOOD, r"`query` must have 1 dimension\(s\), got shape \(1, 4\)"),
        (1.0, GOOD, "`query` must have 1 dimension"),
        (GOOD[0], [[1, 2, 3, np.nan]], r"`candidates` must be finite, got nan at \[0, 3\]"),
        (GOOD[0], [[1, 2, 3, -np.inf]], r"`candidates` must be finite, got -inf at \[0, 3\]"),
        (GOOD[0], [[1, 2, 3]], "`candidates` must have 4 columns like the query, got 3"),
        (GOOD[0], [[1, 2, 3, 4], [0, 0, 0, 0]], "must not be all zero, got such a vector in row 1"),
        (GOOD[0], GOOD[0], r"`candidates` must have 2 dimension\(s\), got shape \(4,\)"),
        (GOOD[0], GOOD[None], "`candidates` must have 2 dimension"),
        (GOOD[0], np.empty((3, 0)), "`candidates` must have 4 columns like the query, got 0"),
        (GOOD[0], [[1, 2, 3, 4], [1, 2]], "`candidates` must be an array of numbers"),
        (GOOD[0], ["abcd"], "`candidates` must hold real numbers"),
        (GOOD[0], "", "`candidates` must hold real numbers"),
        (GOOD[0], 5.0, "`candidates` must have 2 dimension"),
        (GOOD[0], None, "`candidates` must"),
        (GOOD[0], [[10**400, 1, 1, 1]], "`candidates` must be an array of numbers"),
    ],
)
def test_refuses_vectors_that_cannot_be_used(selector, query, candidates, message):
    with pytest.raises(InvalidInputError, match=message):
        selector.select(query, candidates, 2)


@pytest.mark.parametrize("value", [1e100, 1e200])
def test_says_so_when_raw_vectors_leave_the_range_of_float64(value):
    # k(q, x)² must be representable: without scaling to unit length that ends near 1e77.
    with pytest.raises(NumericalError, match="normalize"):
        select([value, 1], [[value, 2], [1, value]], 1, kernel=LinearKernel(normalize=False))


@pytest.mark.parametrize("length_scale", [0, -1, np.nan, np.inf, 1e-200, 1e200])
def test_refuses_a_length_scale_out_of_range(length_scale):
    with pytest.raises(InvalidInputError, match="`length_scale` must be"):
        RBFKernel(length_scale=length_scale)
