"""Exact selectors choose what solving anew for every candidate chooses."""

import numpy as np
import pytest

from sift_core import LinearKernel, RBFKernel, posterior_variances
from tests.selection.oracle import (
    KERNELS,
    ClippedRBFKernel,
    PolynomialKernel,
    SquaredLinearKernel,
    assert_same,
    dense_greedy,
    dense_variance,
    random_pool,
    under,
)

OWN_KERNELS = {
    "polynomial": PolynomialKernel(),
    "subclass of RBFKernel": ClippedRBFKernel(),
    "subclass of LinearKernel": SquaredLinearKernel(),
}
REPEATS = pytest.mark.parametrize("allow_repeats", [True, False], ids=["repeats", "no repeats"])


def random_rows(seed, n, d=7):
    return np.random.default_rng(seed).standard_normal((n, d)) + 0.4


def with_copies():
    """Return copies of candidates, also among what was shown."""
    candidates = random_rows(31, 17)
    candidates[11] = candidates[4]
    shown = np.concatenate([candidates[[4, 0, 4]], random_rows(32, 3), candidates[[16]]])
    return {"query": random_rows(33, 2), "candidates": candidates, "shown": shown}


def asked(seed, *, t=1, n=17, **others):
    return {"query": random_rows(seed, t), "candidates": random_rows(seed + 100, n), **others}


CASES = {
    "one query": dict(zip(("query", "candidates"), random_pool(30), strict=True)),
    # Compiled code reads candidates in pairs.
    "an odd number": dict(zip(("query", "candidates"), random_pool(29, n=29), strict=True)),
    "targets": asked(1, t=5),
    "weighted targets": asked(2, t=3, weights=np.array([0.3, 2.0, 1.1])),
    "targets among the candidates": {**asked(3), "query": random_rows(103, 17)[[2, 5, 5]]},
    "one shown": asked(4, shown=random_rows(5, 1)),
    "many shown": asked(6, t=2, weights=np.array([3.0, 0.0]), shown=random_rows(7, 20)),
    "copies": with_copies(),
}

ALMOST_WITHOUT_NOISE = ("one query", "weighted targets", "one shown")  # else rounding decides
LOOKS = [
    *((case, noise, 12) for case in CASES for noise in (1e-2, 1.0, 1e2)),
    *((case, noise, 7) for case in ALMOST_WITHOUT_NOISE for noise in (1e-6, 1e-4)),
]


def check(choose, kernel, noise, n_select, *, shown=None, allow_repeats=False, **case):
    expected = dense_greedy(
        kernel, noise, n_select=n_select, shown=shown, allow_repeats=allow_repeats, **case
    )
    case |= {"noise": noise, "conditioned_on": shown, "allow_repeats": allow_repeats}
    chosen = choose(n_select=n_select, kernel=kernel, **case)
    assert_same(chosen, expected)


@REPEATS
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("case", "noise", "n_select"), LOOKS)
def test_equals_the_dense_oracle(choose, case, kernel, noise, n_select, allow_repeats):
    check(choose, KERNELS[kernel], noise, n_select, allow_repeats=allow_repeats, **CASES[case])


@pytest.mark.parametrize("kernel", KERNELS)
def test_equals_the_dense_oracle_for_more_steps_than_the_first_factor_holds(choose, kernel):
    query, candidates = random_pool(5, n=20, d=6)
    pool = {"query": query, "candidates": candidates}
    check(choose, KERNELS[kernel], 0.1, 40, allow_repeats=True, **pool)


@REPEATS
@pytest.mark.parametrize("noise", [1e-2, 1.0])
@pytest.mark.parametrize("kernel", OWN_KERNELS)
@pytest.mark.parametrize("case", ["targets", "one shown"])
def test_a_kernel_of_ones_own_equals_the_dense_oracle(choose, case, kernel, noise, allow_repeats):
    check(choose, OWN_KERNELS[kernel], noise, 8, allow_repeats=allow_repeats, **CASES[case])


class GivenCovariance:
    """A kernel that looks up a matrix; embeddings hold successive row numbers. Gives views."""

    def __init__(self, covariance):
        self.covariance = covariance

    def features(self, embeddings):
        return embeddings

    def diagonal(self, features):
        return np.diagonal(self.covariance)[self._rows(features)]

    def column(self, features, point):
        return self.covariance[int(point[0])][self._rows(features)]

    def _rows(self, features):
        first = int(features[0, 0])
        return slice(first, first + len(features))


def test_a_kernel_of_ones_own_may_answer_with_its_own_arrays(choose):
    root = np.random.default_rng(0).standard_normal((6, 6))
    covariance = root @ root.T
    kernel = GivenCovariance(covariance.copy())
    chosen = choose([5.0], np.arange(6.0)[:, None], 4, kernel=kernel, noise=0.1, allow_repeats=True)
    np.testing.assert_array_equal(kernel.covariance, covariance)
    # Its features equal its prior, so the same through explicit features with a linear kernel.
    plain = LinearKernel(normalize=False)
    expected = choose(root[5], root, 4, kernel=plain, noise=0.1, allow_repeats=True)
    assert_same(chosen, expected)


@pytest.mark.parametrize("noise", [1e-4, 0.01, 10.0])
@pytest.mark.parametrize("kernel", [LinearKernel(), RBFKernel()])
@pytest.mark.parametrize("t", [1, 3])
def test_posterior_variances_equal_the_dense_oracle(t, kernel, noise):
    targets, chosen = random_rows(0, t, d=8), random_rows(1, 20, d=8)
    chosen[5], chosen[3] = chosen[2], targets[-1]
    variances = posterior_variances(targets, chosen, **under(noise, kernel))
    expected = [
        sum(dense_variance(kernel, noise, target, chosen[:k]) for target in targets)
        for k in range(len(chosen) + 1)
    ]
    np.testing.assert_allclose(variances, expected, rtol=0, atol=1e-10)


def test_posterior_variances_are_of_the_papers_setting_by_default_by_hand():
    # Linear kernel, λ = 0.01, cos = 0.8: 1 - 0.64 / 1.01
    assert posterior_variances([4.0, 3.0], [[2.0, 0.0]]) == pytest.approx([1, 1 - 0.64 / 1.01])


def test_nothing_chosen_leaves_the_prior():
    assert posterior_variances([3.0, 4.0], []) == pytest.approx([1.0])
    raw = LinearKernel(normalize=False)
    assert posterior_variances([3.0, 4.0], [], kernel=raw) == pytest.approx([25.0])
