import numpy as np
import pytest

from sift_core import (
    LinearKernel,
    RBFKernel,
    explain,
    irreducible_variance,
)
from tests.selection.oracle import (
    CubicKernel,
    SquaredLinearKernel,
    dense_kernel,
    random_pool,
    under,
)


class OwnKernel(LinearKernel):
    """The linear kernel to a function that does not know it."""


KERNELS = [LinearKernel(), RBFKernel(), RBFKernel(length_scale=2.0)]
MOST = 0.5 * np.log(2.0**52)  # nats: a variance down to its rounding


def parts(kernel, query, candidates):
    """Return K, k_q and k(q, q)."""
    points = np.vstack([query, candidates])
    gram = dense_kernel(kernel, points, points)
    return gram[1:, 1:], gram[0, 1:], gram[0, 0]


def test_irreducible_variance_by_hand():
    # q = (3, 4, 0) / 5: without e_2 its part (4/5)² stays.
    query, basis = [3.0, 4.0, 0.0], np.eye(3)
    assert irreducible_variance(query, basis[[0]]) == pytest.approx(0.64)
    assert irreducible_variance(query, basis[[2]]) == pytest.approx(1.0)
    assert irreducible_variance(query, basis[[0, 1]]) == pytest.approx(0.0, abs=1e-15)
    assert irreducible_variance(query, [[1.0, 1.0, 0.0]]) == pytest.approx(1 - 49 / 50)


@pytest.mark.parametrize("kernel", [*KERNELS, OwnKernel(), SquaredLinearKernel(), CubicKernel()])
@pytest.mark.parametrize(("n", "d"), [(0, 3), (1, 3), (5, 8), (12, 30)])
def test_irreducible_variance_equals_the_formula(kernel, n, d):
    query, candidates = random_pool(0, n, d)
    gram, row, variance = parts(kernel, query, candidates)
    expected = variance - row @ np.linalg.pinv(gram) @ row
    found = irreducible_variance(query, candidates, kernel=kernel)
    assert found == pytest.approx(expected, abs=1e-9 * variance)


@pytest.mark.parametrize("kernel", [LinearKernel(normalize=False), OwnKernel(normalize=False)])
def test_the_lengths_of_candidates_play_no_part(kernel):
    # q = 2 e_1 + e_2 keeps e_2, however short the vector that tells e_1; zeros tell nothing.
    pool = [[1e-30, 0.0], [0.0, 0.0]]
    assert irreducible_variance([2.0, 1.0], pool, kernel=kernel) == pytest.approx(1)
    assert irreducible_variance([2.0, 1.0], [[0.0, 0.0]], kernel=kernel) == pytest.approx(5)
    pool = [[1e-30, 0.0], [0.0, 1e30]]
    assert irreducible_variance([2.0, 1.0], pool, kernel=kernel) == pytest.approx(0, abs=1e-12)


def test_a_direction_counts_down_to_rounding():
    # Two candidates an angle apart span e_2 too, until float64 cannot tell them apart: by a QR of
    # the candidates at 1e-16, by K, whose smaller eigenvalue is angle² / 4, at 1e-8.
    def left(angle, kernel):
        return irreducible_variance([0.0, 1.0], [[1.0, 0.0], [1.0, angle]], kernel=kernel)

    for kernel, limits in ((LinearKernel(), (1e-12, 1e-17)), (OwnKernel(), (1e-6, 1e-9))):
        assert left(limits[0], kernel) == pytest.approx(0, abs=1e-2)
        assert left(limits[1], kernel) == pytest.approx(1)


def mutual_information(gram, row, variance, noise, positions):
    """Return I(f(q); y_1:k) = ½ log(σ² det(K + λI) / det(joint covariance))."""
    noisy = gram[np.ix_(positions, positions)] + noise * np.eye(len(positions))
    row = row[positions]
    joint = np.block([[np.array([[variance]]), row[None]], [row[:, None], noisy]])
    return 0.5 * (np.log(variance) + np.linalg.slogdet(noisy)[1] - np.linalg.slogdet(joint)[1])


def test_explain_by_hand():
    # Linear, λ = 1, q = (1, 1) / √2, choices e_1, e_1, e_2. Alone each removes 1/2 / 2 = 1/4.
    # Two looks at e_1 act as one with λ = 1/2 and remove 1/2 / (3/2) = 1/3; e_2 is
    # independent of them and removes 1/4 more: σ² = 1, 3/4, 2/3, 5/12.
    told = explain([1.0, 1.0, 0.0], np.eye(3), [0, 0, 1], **under(1.0))
    assert told.positions.tolist() == [0, 0, 1]
    assert told.information_alone == pytest.approx([0.5 * np.log(4 / 3)] * 3)
    gains = [0.5 * np.log(4 / 3), 0.5 * np.log(9 / 8), 0.5 * np.log(8 / 5)]
    assert told.information_gains == pytest.approx(gains)
    information_shared = [0, 0.5 * np.log(32 / 27), -0.5 * np.log(6 / 5)]
    assert told.information_shared == pytest.approx(information_shared, abs=1e-15)


@pytest.mark.parametrize("kernel", [*KERNELS, CubicKernel()])
@pytest.mark.parametrize("noise", [1e-3, 0.1, 10.0])
def test_explain_equals_the_entropies_of_the_joint_distribution(kernel, noise):
    query, candidates = random_pool(5, 12, 4)
    candidates[3] = candidates[7]
    positions = [7, 2, 3, 2, 11, 0]
    told = explain(query, candidates, positions, **under(noise, kernel))
    dense = *parts(kernel, query, candidates), noise
    joint = [mutual_information(*dense, positions[:n]) for n in range(7)]
    alone = [mutual_information(*dense, [position]) for position in positions]
    np.testing.assert_allclose(told.information_gains, np.diff(joint), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(told.information_alone, alone, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("noise", [1e-20, 1e-12])
def test_a_variance_of_zero_gives_finite_numbers_that_add_up(kernel, noise):
    query, candidates = random_pool(8, 6, 3)
    candidates[2] = query
    told = explain(query, candidates, [0, 2, 2, 1, 5, 4, 3], **under(noise, kernel))
    for numbers in (told.information_gains, told.information_alone, told.information_shared):
        assert np.isfinite(numbers).all()
    assert (told.information_gains >= 0).all()
    assert told.information_alone.max() <= MOST + 1e-9
    total = told.information_gains.sum()
    assert 13 < total <= MOST + 1e-9  # ½ log(1 / 1e-12) = 13.8
    assert told.information_gains[3:].sum() == pytest.approx(0, abs=1)
    np.testing.assert_allclose(
        told.information_alone - told.information_shared, told.information_gains
    )


def test_nothing_is_told_about_what_is_certain():
    # k(q, q) = 0.
    told = explain([0.0, 0.0], np.eye(2), [0, 1], kernel=LinearKernel(normalize=False))
    assert told.information_gains.tolist() == told.information_alone.tolist() == [0.0, 0.0]
    assert told.information_shared.tolist() == [0.0, 0.0]
