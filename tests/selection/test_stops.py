"""When a selection ends early."""

import numpy as np
import pytest

from sift_core import LazySIFTSelector, SIFTSelector
from sift_core.types import StopReason

# Four orthogonal candidates, each with cosine 1/2, and λ = 3: each choice lowers σ² by
# 0.25 / 4 = 0.0625 exactly, so σ² = 1, 0.9375, 0.875, 0.8125, 0.75.
QUERY, BASIS = np.ones(4), np.eye(4)
VARIANCES = [1, 0.9375, 0.875, 0.8125, 0.75]


@pytest.fixture
def stop(choose):
    def run(n_select=4, **settings):
        return choose(QUERY, BASIS, n_select, noise=3.0, **settings)

    return run


@pytest.mark.parametrize(
    ("alpha", "n_chosen"),
    [
        # σ₁ = √0.9375 = 0.968, σ₂ = √0.875 = 0.935, σ₃ = √0.8125 = 0.901, σ₄ = √0.75 = 0.866
        (1.04, 0),  # 1 / (1.04 · 1) = 0.962 < σ₁: not even the first step
        (1.03, 1),  # 1 / 1.03 = 0.971 >= σ₁, 1 / 2.06 = 0.485 < σ₂
        (0.54, 1),  # 1 / 1.08 = 0.926 < σ₂
        (0.53, 2),  # 1 / 1.06 = 0.943 >= σ₂, 1 / 1.59 = 0.629 < σ₃
        (0.36, 3),  # 1 / 1.08 = 0.926 >= σ₃, 1 / 1.44 = 0.694 < σ₄
        (np.inf, 0),
    ],
)
def test_adaptive_stop_by_hand(stop, alpha, n_chosen):
    chosen = stop(alpha=alpha)
    assert len(chosen) == n_chosen
    assert chosen.variances.tolist() == VARIANCES[: n_chosen + 1]
    assert chosen.stop_reason is StopReason.ALPHA


@pytest.mark.parametrize(
    ("max_variance", "n_chosen"), [(np.inf, 0), (1.0, 0), (0.9, 2), (0.875, 2), (0.76, 4)]
)
def test_stops_as_soon_as_the_variance_is_small_enough(stop, max_variance, n_chosen):
    chosen = stop(n_select=9, max_variance=max_variance, allow_repeats=True)
    assert len(chosen) == n_chosen
    assert chosen.stop_reason is StopReason.MAX_VARIANCE
    assert chosen.variances[-1] <= max_variance


def test_the_stops_see_the_weighted_sum_of_the_targets(choose):
    # Targets e₁ and e₂ with weights 3 and 1 and λ = 3: x = e₁ lowers Σ w σ² by 3 / 4, then e₂
    # by 1 / 4: 4, 3.25, 3.
    settings = {"noise": 3.0, "weights": [3, 1]}
    assert choose(np.eye(2), np.eye(2), 2, **settings).variances.tolist() == [4, 3.25, 3]
    assert len(choose(np.eye(2), np.eye(2), 2, **settings, max_variance=3.25)) == 1
    assert len(choose(np.eye(2), np.eye(2), 2, **settings, min_gain=0.26)) == 1
    # √3.25 = 1.80 <= 1 / 0.5, √3 = 1.73 > 1 / (0.5 · 2)
    assert len(choose(np.eye(2), np.eye(2), 2, **settings, alpha=0.5)) == 1


# Candidates that are alike in all are chosen from the lowest position on, whatever chooses.
@pytest.mark.parametrize("selector", [SIFTSelector, LazySIFTSelector])
@pytest.mark.parametrize(
    ("settings", "n_chosen", "reason"),
    [
        ({}, 4, StopReason.POOL_EXHAUSTED),
        ({"alpha": 0.53}, 2, StopReason.ALPHA),
        ({"max_variance": 0.875}, 2, StopReason.MAX_VARIANCE),
        ({"max_variance": 0.75}, 4, StopReason.MAX_VARIANCE),
        ({"max_variance": 1.0, "min_gain": 1.0}, 0, StopReason.MAX_VARIANCE),
        ({"min_gain": 0.0625}, 4, StopReason.POOL_EXHAUSTED),
        ({"min_gain": 0.0626, "alpha": 9.0}, 0, StopReason.MIN_GAIN),
    ],
)
def test_every_selector_with_a_variance_stops_alike(selector, settings, n_chosen, reason):
    chosen = selector(noise_variance=3.0, **settings).select(QUERY, BASIS, 9)
    assert chosen.positions.tolist() == list(range(n_chosen))
    assert chosen.variances == pytest.approx(VARIANCES[: n_chosen + 1])
    assert chosen.stop_reason is reason
