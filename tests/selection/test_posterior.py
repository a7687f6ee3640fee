import numpy as np
import pytest

from sift_core import LinearKernel, posterior_variances
from sift_core.selection.posterior import Posterior


def test_is_the_papers_setting_by_default_by_hand():
    # Linear kernel, λ = 0.01, cos = 0.8: 1 - 0.64 / 1.01
    assert posterior_variances([4.0, 3.0], [[2.0, 0.0]]) == pytest.approx([1, 1 - 0.64 / 1.01])


def test_the_order_of_observations_does_not_change_the_last_variance():
    rng = np.random.default_rng(2)
    query, chosen = rng.standard_normal(8), rng.standard_normal((12, 8))
    forwards, backwards = (posterior_variances(query, c) for c in (chosen, chosen[::-1]))
    assert forwards[-1] == pytest.approx(backwards[-1], abs=1e-12)


def test_nothing_chosen_leaves_the_prior():
    assert posterior_variances([3.0, 4.0], []) == pytest.approx([1.0])
    raw = LinearKernel(normalize=False)
    assert posterior_variances([3.0, 4.0], [], kernel=raw) == pytest.approx([25.0])


def test_rounding_takes_no_variance_below_zero():
    # Observing without noise to speak of leaves 0 up to rounding, on either side of it.
    for seed in range(20):
        candidates = np.random.default_rng(seed).standard_normal((6, 5))
        posterior = Posterior.prior(LinearKernel(), 1e-20, candidates[0], candidates)
        for position in range(len(candidates)):
            posterior.observe(position)
            assert (posterior.diagonal >= 0).all()
            assert 0 <= posterior.variances[-1] <= posterior.variances[-2]
