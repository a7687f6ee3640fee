import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sift_core import LazySIFTSelector, LinearKernel, RBFKernel, SIFTSelector
from tests.selection.oracle import assert_same, under

settings.register_profile("lazy", deadline=None, derandomize=True, max_examples=60)
quick = settings.get_profile("lazy")

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


def both(query, candidates, n_select, noise=0.01, **settings_):
    settings_ |= under(noise)
    lazy = LazySIFTSelector(**settings_).select(query, candidates, n_select)
    return lazy, SIFTSelector(**settings_).select(query, candidates, n_select)


@quick
@given(seeds, st.floats(-9, 4), st.booleans(), st.integers(0, 60))
def test_equals_the_exact_choice_where_the_objective_is_submodular(
    seed, exponent, allow_repeats, n_select
):
    query, candidates = modular_pool(seed)
    lazy, exact = both(query, candidates, n_select, 10.0**exponent, allow_repeats=allow_repeats)
    assert_same(lazy, exact, atol=1e-12)
    assert lazy.bound_violations == 0
    targets = np.random.default_rng(seed).standard_normal((1 + n_select % 5, len(query)))
    lazy, exact = both(targets, candidates, min(n_select, 12), noise=0.1)
    assert_same(lazy, exact, atol=1e-12)


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
    lazy, exact = both(SYNERGY_QUERY, SYNERGY, 2)
    assert lazy.positions.tolist() != exact.positions.tolist()
    assert lazy.bound_violations == 0  # b is never looked at again


def test_looks_at_few_candidates_where_few_are_near():
    query, candidates = clustered_pool(3)
    n, n_select = len(candidates), 20
    kernel = CountingKernel(RBFKernel(), n)
    lazy = LazySIFTSelector(**under(0.1, kernel)).select(query, candidates, n_select)
    exact = SIFTSelector(**under(0.1, RBFKernel())).select(query, candidates, n_select)
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


def test_a_nearly_tied_candidate_goes_by_position():
    # As in SIFTSelector gains within 1e-12 of the largest are tied.
    angle = np.arccos(0.5)
    near = [[np.cos(angle + turn), np.sin(angle + turn)] for turn in (1e-14, 0.0)]
    assert LazySIFTSelector().select([1.0, 0.0], near, 1).positions.tolist() == [0]
