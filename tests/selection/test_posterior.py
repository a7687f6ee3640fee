import numpy as np
import pytest

from sift_core.selection import LinearKernel, RBFKernel, posterior_variances
from sift_core.selection.posterior import Posterior


def unit(array):
    return array / np.linalg.norm(array, axis=-1, keepdims=True)


@pytest.mark.parametrize("noise_variance", [1e-4, 0.01, 10.0])
@pytest.mark.parametrize(("name", "kernel"), [("linear", LinearKernel()), ("rbf", RBFKernel())])
def test_equals_the_dense_oracle(variance_oracle, name, kernel, noise_variance):
    rng = np.random.default_rng(0)
    query, chosen = unit(rng.standard_normal(8) + 1), unit(rng.standard_normal((20, 8)) + 1)
    chosen[5] = chosen[2]
    variances = posterior_variances(query, chosen, kernel=kernel, noise_variance=noise_variance)
    expected = [
        variance_oracle(name, noise_variance, query, chosen[:k]) for k in range(len(chosen) + 1)
    ]
    np.testing.assert_allclose(variances, expected, rtol=0, atol=1e-10)


def test_is_the_papers_setting_by_default_by_hand():
    # Linear kernel, λ = 0.01, cos = 0.8: 1 - 0.64 / 1.01
    assert posterior_variances([4.0, 3.0], [[2.0, 0.0]]) == pytest.approx([1, 1 - 0.64 / 1.01])


@pytest.mark.parametrize("t", [1, 3])
@pytest.mark.parametrize("kernel", [LinearKernel(), RBFKernel()])
def test_agrees_with_the_selection_that_made_the_choice(choose, kernel, t):
    rng = np.random.default_rng(1)
    query, candidates = rng.standard_normal((t, 8)), rng.standard_normal((20, 8))
    settings = {"kernel": kernel, "noise_variance": 0.3}
    chosen = choose(query, candidates, 10, allow_repeats=True, **settings)
    variances = posterior_variances(query, candidates[chosen.positions], **settings)
    np.testing.assert_allclose(chosen.variances, variances, rtol=0, atol=1e-12)


def test_the_order_of_observations_does_not_change_the_last_variance():
    rng = np.random.default_rng(2)
    query, chosen = rng.standard_normal(8), rng.standard_normal((12, 8))
    forwards, backwards = (posterior_variances(query, c) for c in (chosen, chosen[::-1]))
    assert forwards[-1] == pytest.approx(backwards[-1], abs=1e-12)


def test_nothing_chosen_leaves_the_prior():
    assert posterior_variances([3.0, 4.0], []) == pytest.approx([1.0])
    raw = LinearKernel(normalize=False)
    assert posterior_variances([3.0, 4.0], [], kernel=raw) == pytest.approx([25.0])


@pytest.mark.parametrize("m", [None, 0, 1, 20], ids="shown: {}".format)
@pytest.mark.parametrize("t", [1, 3], ids="targets: {}".format)
def test_tracks_the_conditional_covariance_of_every_candidate(t, m):
    # Paper, appendix "Efficient Computation": K_n = K - K_X (K_X + λI)⁻¹ K_X, and k_n(x*, x).
    rng = np.random.default_rng(3)
    targets, candidates, shown = (unit(rng.standard_normal((n, 6))) for n in (t, 15, m or 0))
    weights = rng.uniform(0.5, 2, t)
    observed, noise_variance = [3, 7, 3, 0, 14, 7, 7], 0.2
    posterior = Posterior.prior(
        LinearKernel(),
        noise_variance,
        targets,
        candidates,
        weights=weights,
        conditioned_on=None if m is None else shown,
    )
    for position in observed:
        posterior.observe(position)
    x = np.concatenate([shown, candidates[observed]])
    inverse = np.linalg.inv(x @ x.T + noise_variance * np.eye(len(x)))
    projection = np.eye(6) - x.T @ inverse @ x
    covariance = targets @ projection @ candidates.T
    np.testing.assert_allclose(posterior.covariance, covariance, atol=1e-12)
    diagonal = np.einsum("nd,de,ne->n", candidates, projection, candidates)
    np.testing.assert_allclose(posterior.diagonal, diagonal, atol=1e-12)
    gains = weights @ covariance**2 / (diagonal + noise_variance)
    np.testing.assert_allclose(posterior.gains(), gains, atol=1e-12)
    variance = weights @ np.einsum("td,de,te->t", targets, projection, targets)
    assert posterior.variances[-1] == pytest.approx(variance, abs=1e-12)
    assert len(posterior.variances) == len(observed) + 1
    assert posterior.positions == observed
    assert posterior.n == 15


def test_rounding_takes_no_variance_below_zero():
    # Observing without noise to speak of leaves 0 up to rounding, on either side of it.
    for seed in range(20):
        candidates = np.random.default_rng(seed).standard_normal((6, 5))
        posterior = Posterior.prior(LinearKernel(), 1e-20, candidates[0], candidates)
        for position in range(len(candidates)):
            posterior.observe(position)
            assert (posterior.diagonal >= 0).all()
            assert 0 <= posterior.variances[-1] <= posterior.variances[-2]
