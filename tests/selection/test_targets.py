"""Several weighted targets, and what was shown before."""

import numpy as np
import pytest


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
