import numpy as np
import pytest

from sift_core.evaluation.redundancy import Versions, noisy_copies


def plain(n=500, d=384):
    rows = np.random.default_rng(99).standard_normal((n, d), dtype=np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return Versions(condition="as is", embeddings=rows, originals=np.arange(n))


def test_noisy_copies_have_the_cosine_of_their_noise():
    # |x + .3 u|² = 1.09 + .6 cos(x, u): the cosine is 1/√1.09 = .958 where u is at right angles.
    original, copies = plain(), noisy_copies(plain(), 4, seed=0)
    cosines = (copies.embeddings * original.embeddings[copies.originals]).sum(axis=1)
    assert cosines.mean() == pytest.approx(1.09**-0.5, abs=0.001)
    assert cosines.std() < 0.01
    assert cosines.max() < 0.98  # none is the embedding itself
    np.testing.assert_allclose(np.linalg.norm(copies.embeddings, axis=1), 1.0, rtol=1e-6)
    assert copies.embeddings.dtype == np.float32
    assert copies.condition == "duplicates 4"
    np.testing.assert_array_equal(np.bincount(copies.originals), np.full(500, 4))


def test_noisy_copies_are_seeded_and_fewer_are_the_first_of_more():
    two, four = (noisy_copies(plain(), n, seed=3) for n in (2, 4))
    np.testing.assert_array_equal(two.embeddings, four.embeddings[:1000])
    assert not np.array_equal(two.embeddings, noisy_copies(plain(), 2, seed=4).embeddings)
