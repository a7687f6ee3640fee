import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sift_core.errors import InvalidInputError, NumericalError
from sift_core.selection import LinearKernel, RBFKernel, SIFTSelector, posterior_variances
from sift_core.selection.lazy import LazySIFTSelector
from sift_core.types import StopReason

settings.register_profile("lazy", deadline=None, derandomize=True, max_examples=60)
quick = settings.get_profile("lazy")

KERNELS = {"linear": LinearKernel(), "rbf": RBFKernel()}
seeds = st.integers(0, 2**32 - 1)

# a and b tell together what neither tells alone; LazySIFTSelector's docstring.
SYNERGY_QUERY = np.array([1.0, 0.0, 0.0])
SYNERGY = np.array([[0.6, 0.8, 0.0], [0.0, 1.0, 0.0], [0.28, 0.0, 0.96]])


class CountingKernel:
    """Another kernel, and how many values of it were asked for after the query's row."""

    def __init__(self, kernel, n):
        self.kernel, self.n = kernel, n
        self.n_looks = self.n_values = 0

    def features(self, embeddings):
        return self.kernel.features(embeddings)

    def diagonal(self, features):
        return self.kernel.diagonal(features)

    def column(self, features, point):
        if len(features) < self.n:
            self.n_looks += 1
            self.n_values += len(features)
        return self.kernel.column(features, point)


def modular_pool(seed):
    """Orthonormal candidates and copies of them: gains stay, or fall by a repeat alone."""
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 20))
    directions = np.linalg.qr(rng.standard_normal((d, d)))[0]  # orthogonal: rows, columns
    rows = rng.integers(0, int(rng.integers(1, d + 1)), size=int(rng.integers(1, 30)))
    query = rng.standard_normal(d) * 10.0 ** rng.uniform(-8, 0, size=d)  # also tiny gains
    return directions.T @ query, directions[rows]


def clustered_pool(seed, n_clusters=40, size=25, d=64):
    """As a large search leaves it: many clusters, of which the query is near four.

    Loose ones, cosine about .5: in tight ones bounds are violated under the RBF kernel too.
    """
    rng = np.random.default_rng(seed)
    centers = rng.standard_normal((n_clusters, d))
    query = centers[:4].sum(axis=0) / 2 + 0.5 * rng.standard_normal(d)
    members = np.repeat(centers, size, axis=0)
    return query, members + rng.standard_normal(members.shape)


def both(query, candidates, n_select, **settings_):
    lazy = LazySIFTSelector(**settings_).select(query, candidates, n_select)
    return lazy, SIFTSelector(**settings_).select(query, candidates, n_select)


def choices_before_a_gain_rises(variance_oracle, name, noise_variance, query, candidates, at_most):
    """Return the first exact choices: as many as no gain had risen before, by clear margins."""
    query = query / np.linalg.norm(query)
    candidates = candidates / np.linalg.norm(candidates, axis=1, keepdims=True)
    chosen, before = [], np.inf
    while len(chosen) < min(at_most, len(candidates)):
        now = variance_oracle(name, noise_variance, query, candidates[chosen])
        gains = np.array(
            [
                now - variance_oracle(name, noise_variance, query, candidates[[*chosen, i]])
                for i in range(len(candidates))
            ]
        )
        left = np.setdiff1d(np.arange(len(candidates)), chosen)
        order = left[np.argsort(-gains[left])]
        is_close = len(order) > 1 and gains[order[0]] - gains[order[1]] < 1e-9
        if (gains > before + 1e-12).any() or is_close:
            break
        chosen.append(int(order[0]))
        before = gains
    return chosen


@quick
@given(seeds, st.sampled_from(sorted(KERNELS)), st.sampled_from([0.01, 0.1, 1.0, 100.0]))
def test_equals_the_exact_choice_as_long_as_no_gain_rises(
    variance_oracle, seed, name, noise_variance
):
    rng = np.random.default_rng(seed)
    d = int(rng.integers(2, 12))
    query = rng.standard_normal(d)
    candidates = query + rng.standard_normal((int(rng.integers(1, 16)), d))
    safe = choices_before_a_gain_rises(variance_oracle, name, noise_variance, query, candidates, 8)
    lazy, exact = both(
        query, candidates, len(safe), kernel=KERNELS[name], noise_variance=noise_variance
    )
    assert lazy.positions.tolist() == exact.positions.tolist() == safe
    np.testing.assert_allclose(lazy.variances, exact.variances, rtol=0, atol=1e-12)
    assert lazy.bound_violations == 0


@quick
@given(seeds, st.floats(-9, 4), st.booleans(), st.integers(0, 60))
def test_equals_the_exact_choice_where_the_objective_is_submodular(
    seed, exponent, allow_repeats, n_select
):
    query, candidates = modular_pool(seed)
    lazy, exact = both(
        query, candidates, n_select, noise_variance=10.0**exponent, allow_repeats=allow_repeats
    )
    assert lazy.positions.tolist() == exact.positions.tolist()
    np.testing.assert_allclose(lazy.variances, exact.variances, rtol=0, atol=1e-12)
    assert lazy.stop_reason is exact.stop_reason
    assert lazy.bound_violations == 0


@quick
@given(seeds, st.integers(1, 5))
def test_equals_the_exact_choice_for_several_targets(seed, n_targets):
    query, candidates = modular_pool(seed)
    targets = np.random.default_rng(seed).standard_normal((n_targets, len(query)))
    lazy, exact = both(targets, candidates, 12, noise_variance=0.1)
    assert lazy.positions.tolist() == exact.positions.tolist()
    np.testing.assert_allclose(lazy.variances, exact.variances, rtol=0, atol=1e-12)


@pytest.mark.parametrize("allow_repeats", [True, False], ids=["repeats", "no repeats"])
@pytest.mark.parametrize("noise_variance", [1e-6, 1e-2, 1.0])
@pytest.mark.parametrize("name", KERNELS)
def test_the_variances_are_right_whatever_was_chosen(
    variance_oracle, name, noise_variance, allow_repeats
):
    rng = np.random.default_rng(7)
    query, candidates = rng.standard_normal(24), rng.standard_normal((30, 24)) + 0.4
    chosen = LazySIFTSelector(
        kernel=KERNELS[name], noise_variance=noise_variance, allow_repeats=allow_repeats
    ).select(query, candidates, 25)
    units = candidates / np.linalg.norm(candidates, axis=1, keepdims=True)
    for n, variance in enumerate(chosen.variances):
        expected = variance_oracle(
            name, noise_variance, query / np.linalg.norm(query), units[chosen.positions[:n]]
        )
        assert variance == pytest.approx(expected, rel=0, abs=1e-10)


@quick
@given(seeds, st.floats(-12, 4), st.booleans())
def test_any_pool_gives_a_valid_selection(seed, exponent, allow_repeats):
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(1, 30)), int(rng.integers(1, 12))
    candidates = rng.standard_normal((n, d))[rng.integers(0, n, size=n)]  # with copies
    query, n_select = rng.standard_normal(d), int(rng.integers(0, 40))
    chosen = LazySIFTSelector(noise_variance=10.0**exponent, allow_repeats=allow_repeats).select(
        query, candidates, n_select
    )
    expected = n_select if allow_repeats else min(n_select, n)
    assert chosen.positions.shape == (expected,)
    assert ((chosen.positions >= 0) & (chosen.positions < n)).all()
    assert (chosen.gains >= 0).all()
    assert (chosen.variances >= 0).all()
    if not allow_repeats:
        assert len(set(chosen.positions.tolist())) == expected
    np.testing.assert_allclose(
        chosen.variances,
        posterior_variances(query, candidates[chosen.positions], noise_variance=10.0**exponent),
        rtol=0,
        atol=1e-9,
    )


def test_synergy_by_hand():
    lazy, exact = both(SYNERGY_QUERY, SYNERGY, 3)
    # After a, with 1.01 = k(a, a) + λ: b gains (.6 · .8 / 1.01)² / (1 - .64 / 1.01 + .01),
    # c gains (.28 - .6 · .168 / 1.01)² / (1 - .168² / 1.01 + .01), where k(a, c) = .168.
    of_b = (0.48 / 1.01) ** 2 / (1.01 - 0.64 / 1.01)
    of_c = (0.28 - 0.1008 / 1.01) ** 2 / (1.01 - 0.168**2 / 1.01)
    assert (of_b, of_c) == (pytest.approx(0.60, abs=0.005), pytest.approx(0.033, abs=0.0005))
    assert exact.positions.tolist() == [0, 1, 2]
    assert exact.gains[1] == pytest.approx(of_b)
    assert lazy.positions.tolist() == [0, 2, 1]
    assert lazy.gains[1] == pytest.approx(of_c)
    assert lazy.bound_violations == 1  # b, when nothing else is left to look at
    assert exact.bound_violations == 0


def test_a_violation_by_a_candidate_never_looked_at_again_goes_unnoticed():
    lazy, exact = both(SYNERGY_QUERY, SYNERGY, 2)
    assert lazy.positions.tolist() != exact.positions.tolist()
    assert lazy.bound_violations == 0


@pytest.mark.parametrize("sine", [1e-1, 1e-3, 1e-5])
def test_reports_a_small_violation(sine):
    # b alone gains 0 again, after a (.48 · sine / 1.01)² / about 1.01.
    b = [0.0, sine, (1 - sine**2) ** 0.5]
    lazy = LazySIFTSelector().select(SYNERGY_QUERY, [SYNERGY[0], b], 2)
    assert lazy.gains[1] == pytest.approx((0.48 * sine / 1.01) ** 2 / 1.01, rel=1e-2, abs=1e-15)
    assert lazy.bound_violations == 1


def test_looks_at_few_candidates_where_few_are_near():
    query, candidates = clustered_pool(3)
    n, n_select = len(candidates), 20
    kernel = CountingKernel(RBFKernel(), n)
    lazy = LazySIFTSelector(kernel=kernel, noise_variance=0.1).select(query, candidates, n_select)
    exact = SIFTSelector(kernel=RBFKernel(), noise_variance=0.1).select(query, candidates, n_select)
    assert lazy.positions.tolist() == exact.positions.tolist()
    assert lazy.bound_violations == 0
    assert kernel.n_looks < 0.02 * n * n_select
    assert kernel.n_values < 0.02 * n * n_select  # no full column either


def test_copies_of_what_was_chosen_cost_no_kernel_value():
    kernel = CountingKernel(LinearKernel(), 40)
    candidates = np.tile([[0.6, 0.8]], (40, 1))
    lazy = LazySIFTSelector(kernel=kernel).select([1.0, 0.0], candidates, 10)
    assert lazy.positions.tolist() == list(range(10))
    assert kernel.n_looks == 0


@pytest.mark.parametrize("allow_repeats", [True, False], ids=["repeats", "no repeats"])
@pytest.mark.parametrize("n", [0, 1, 3])
def test_more_than_there_are(n, allow_repeats):
    lazy, exact = both(np.ones(4), np.eye(4)[:n], 7, allow_repeats=allow_repeats)
    assert lazy.positions.tolist() == exact.positions.tolist()
    np.testing.assert_allclose(lazy.variances, exact.variances, rtol=0, atol=1e-14)
    assert lazy.stop_reason is exact.stop_reason
    complete = allow_repeats and n > 0
    assert lazy.stop_reason is (StopReason.N_SELECT if complete else StopReason.POOL_EXHAUSTED)


def test_an_empty_pool_takes_no_memory_for_what_was_asked():
    chosen = LazySIFTSelector(allow_repeats=True).select([1.0], [], 10**8)
    assert chosen.stop_reason is StopReason.POOL_EXHAUSTED


@pytest.mark.parametrize("allow_repeats", [True, False], ids=["repeats", "no repeats"])
def test_variances_stay_in_range_where_the_noise_is_as_small_as_rounding(allow_repeats):
    selector = LazySIFTSelector(noise_variance=1e-15, allow_repeats=allow_repeats)
    for seed in range(200):
        rng = np.random.default_rng(seed)
        d = int(rng.integers(1, 6))
        candidates = rng.standard_normal((12, d))
        variances = selector.select(rng.standard_normal(d), candidates, 12).variances
        assert (variances >= 0).all()
        assert (np.diff(variances) <= 0).all()


def test_a_nearly_tied_candidate_goes_by_position():
    # As in SIFTSelector gains within 1e-12 of the largest are tied.
    angle = np.arccos(0.5)
    near = [[np.cos(angle + turn), np.sin(angle + turn)] for turn in (1e-14, 0.0)]
    assert LazySIFTSelector().select([1.0, 0.0], near, 1).positions.tolist() == [0]


def test_a_repeat_goes_back_on_the_heap():
    # λ = .5: observing a direction m times leaves it k(q, x) / (1 + 2m) and variance 1 / (1 + 2m).
    # So the first, second and third look at k = .8 gain .427, .085 and .037, those at .6
    # gain .24, .048 and .021.
    lazy, exact = both([0.6, 0.8], np.eye(2), 4, noise_variance=0.5, allow_repeats=True)
    assert lazy.positions.tolist() == exact.positions.tolist() == [1, 0, 1, 0]
    np.testing.assert_allclose(lazy.variances, exact.variances, rtol=0, atol=1e-14)


@pytest.mark.parametrize("noise_variance", [0.0, -1.0, np.nan, np.inf])
def test_refuses_a_noise_variance_out_of_range(noise_variance):
    with pytest.raises(InvalidInputError, match="noise_variance"):
        LazySIFTSelector(noise_variance=noise_variance)


def test_refuses_a_noise_variance_lost_in_rounding():
    rng = np.random.default_rng(0)
    with pytest.raises(NumericalError, match="too small"):
        LazySIFTSelector(noise_variance=1e-300).select(
            rng.standard_normal(3), rng.standard_normal((9, 3)), 9
        )


def test_refuses_values_too_large_for_float64():
    with pytest.raises(NumericalError, match="too large"):
        LazySIFTSelector(kernel=LinearKernel(normalize=False)).select([1e200], [[1e200]], 1)
