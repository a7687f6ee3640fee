"""Several weighted targets, and what was shown before."""

import numpy as np
import pytest

from sift_core.types import StopReason
from tests.selection.oracle import KERNELS


def pool(seed, t=4, n=17, d=7):
    """Return targets (t, d) and candidates (n, d), not of unit length."""
    rng = np.random.default_rng(seed)
    return tuple(rng.standard_normal((rows, d)) + 0.4 for rows in (t, n))


def test_two_targets_by_hand(choose):
    # λ = 0.5. e₁ says 3 · 1 / 1.5 = 2 about the first target and nothing about the second,
    # (0.6, 0.8) says 3 · 0.36 / 1.5 + 2 · 0.64 / 1.5 = 1.573; together with e₁ the second
    # target's variance falls by (0.8)² / (0.64 + 0.36 / 3 + 0.5).
    chosen = choose(np.eye(2), [[0.6, 0.8], [1.0, 0.0]], 2, weights=[3.0, 2.0], noise=0.5)
    assert chosen.positions.tolist() == [1, 0]
    # After e₁: k(x, x) = 1 - 0.36 / 1.5 = 0.76, k(e₁, x) = 0.6 - 0.6 / 1.5 = 0.2, k(e₂, x) = 0.8,
    # so the second choice says (3 · 0.04 + 2 · 0.64) / (0.76 + 0.5) = 1.4 / 1.26.
    assert chosen.variances == pytest.approx([5.0, 3.0, 3.0 - 1.4 / 1.26])


def test_one_target_of_weight_one_is_the_query(choose):
    targets, candidates = pool(5, t=1)
    one = choose(targets[0], candidates, 9, noise=0.1)
    other = choose(targets, candidates, 9, weights=[1.0], noise=0.1)
    np.testing.assert_array_equal(one.positions, other.positions)
    np.testing.assert_array_equal(one.variances, other.variances)


def test_a_target_of_weight_zero_does_not_count(choose):
    targets, candidates = pool(6, t=2)
    one = choose(targets[0], candidates, 9, noise=0.1)
    other = choose(targets, candidates, 9, weights=[1, 0], noise=0.1)
    assert one.positions.tolist() == other.positions.tolist()
    np.testing.assert_allclose(one.variances, other.variances, rtol=0, atol=1e-14)


@pytest.mark.parametrize("noise", [1e-12, 1e-6, 1e-2])
@pytest.mark.parametrize("kernel", KERNELS)
def test_what_was_shown_comes_after_what_says_as_much_and_is_new(choose, kernel, noise):
    # e₁ and e₂ are equally near to the query; e₁ was shown.
    chosen = choose(
        [1.0, 1, 0],
        np.eye(3),
        2,
        kernel=KERNELS[kernel],
        noise=noise,
        conditioned_on=np.eye(3)[:1],
    )
    assert chosen.positions[0] == 1


def test_conditioning_by_hand(choose):
    # λ = 0.5. Shown e₁: σ² = 1 - 0.36 / 1.5 = 0.76, which the selection begins with. Then e₂
    # says 0.64 / 1.5 and e₁, of which k(x, x) = 1 - 1 / 1.5 and k(q, x) = 0.6 / 3 are left,
    # 0.04 / (1 / 3 + 1 / 2) = 0.048.
    shown = np.array([[2.0, 0.0]])
    chosen = choose([0.6, 0.8], np.eye(2), 2, noise=0.5, conditioned_on=shown)
    assert chosen.positions.tolist() == [1, 0]
    assert chosen.variances == pytest.approx([0.76, 0.76 - 0.64 / 1.5, 0.76 - 0.64 / 1.5 - 0.048])


def test_conditioning_continues_a_selection(choose):
    targets, candidates = pool(13)
    settings = {"noise": 0.2, "allow_repeats": True}
    whole = choose(targets, candidates, 12, **settings)
    begun = choose(targets, candidates, 5, **settings)
    rest = choose(targets, candidates, 7, conditioned_on=candidates[begun.positions], **settings)
    assert [*begun.positions, *rest.positions] == whole.positions.tolist()
    np.testing.assert_allclose(rest.variances, whole.variances[5:], rtol=0, atol=1e-12)


def test_enough_shown_stops_before_the_first_choice(choose):
    chosen = choose(
        [1.0, 0],
        np.eye(2),
        2,
        noise=0.5,
        max_variance=0.34,
        conditioned_on=np.array([[1.0, 0]]),  # leaves 1 / 3
    )
    assert len(chosen) == 0
    assert chosen.stop_reason is StopReason.MAX_VARIANCE
