"""Where a last digit would change the choice or the variance."""

import numpy as np
import pytest

from sift_core.errors import InvalidInputError
from sift_core.selection import LinearKernel, RBFKernel, SIFTSelector
from sift_core.types import StopReason


class UnevenKernel:
    """The linear kernel as a matrix product that sums every row in an order of its own."""

    def features(self, embeddings):
        return LinearKernel().features(embeddings)

    def diagonal(self, features):
        return np.ones(len(features))

    def column(self, features, point):
        return features @ point * (1 + 1e-15 * np.arange(len(features)))


def test_copies_stay_equal_after_what_was_shown():
    # With so little noise what is left of a copy is nothing but rounding, made huge by 1 / λ.
    rng = np.random.default_rng(0)
    originals = rng.standard_normal((6, 20))
    candidates = np.tile(originals, (5, 1))
    selector = SIFTSelector(kernel=UnevenKernel(), noise_variance=1e-13)
    chosen = selector.select(
        rng.standard_normal(20), candidates, 30, conditioned_on=rng.standard_normal((3, 20))
    )
    for label in range(6):
        picked = [position for position in chosen.positions.tolist() if position % 6 == label]
        assert picked == list(range(label, 30, 6))


def test_a_candidate_tells_no_more_than_all_of_the_query(choose):
    # A cosine of 1 + 2e-16 times 1 / length_scale² would make k 9 instead of 1.
    for seed in range(20):
        query = np.random.default_rng(seed).standard_normal(50)
        kernel = RBFKernel(length_scale=1e-8)
        chosen = choose(query, [query, -query], 1, kernel=kernel, noise_variance=1.0)
        assert chosen.variances[-1] >= 0.5


@pytest.mark.parametrize(("alpha", "n_chosen"), [(2.0, 1), (2.0 + 1e-12, 0)])
def test_a_step_that_just_pays_is_taken(choose, alpha, n_chosen):
    # 1 - 1 / (1 + 1/3) = 1/4 exactly: σ = 1/2 = 1 / (2 · 1)
    chosen = choose([1.0, 0], [[1.0, 0]], 1, noise_variance=1 / 3, alpha=alpha)
    assert len(chosen) == n_chosen
    assert (chosen.stop_reason is StopReason.ALPHA) == (n_chosen == 0)


@pytest.mark.parametrize("length_scale", [1e-200, 1e-160, 1e200, np.inf, np.nan, 0.0, -1.0])
def test_refuses_a_length_scale_whose_square_leaves_the_range(length_scale):
    with pytest.raises(InvalidInputError, match="`length_scale` must be > 0"):
        RBFKernel(length_scale=length_scale)
