import numpy as np
import pytest

from sift_core import LinearKernel, RBFKernel, SIFTSelector
from tests.selection.oracle import KERNELS, random_pool, under


def test_the_same_point_twice_by_hand(choose):
    # The first leaves 1 - k² / (1 + λ) = 1 - 0.36 / 1.5 = 0.76. Paper, proofs, "2nd point":
    # ψ({x₁, x₁}) = 2k² / (2 + λ) = 2 · 0.36 / 2.5 = 0.288
    chosen = choose([1.0, 0.0], [[0.6, 0.8]], 2, noise=0.5, allow_repeats=True)
    assert chosen.positions.tolist() == [0, 0]
    assert chosen.variances == pytest.approx([1.0, 0.76, 0.712])
    assert chosen.gains == pytest.approx([0.24, 0.048])
    assert chosen.standard_deviation == pytest.approx(0.712**0.5)


@pytest.mark.parametrize("noise", [0.01, 0.5, 2.0, 100.0])
@pytest.mark.parametrize(
    ("ratio", "second"), [(0.999, 0), (1.001, 1)], ids=["below: repeat", "above: new"]
)
def test_an_orthogonal_point_comes_second_beyond_the_papers_threshold(choose, noise, ratio, second):
    # Preferred over x₁ again if and only if k² > λ / (2 + λ) · k₁². With λ = 0.5 and k₁ = 0.6
    # that is k² > 0.2 · 0.36 = 0.072.
    k_1 = 0.6
    k_2 = ratio * (noise / (2 + noise)) ** 0.5 * k_1
    query = [k_1, k_2, (1 - k_1**2 - k_2**2) ** 0.5]
    chosen = choose(query, np.eye(3)[:2], 2, noise=noise, allow_repeats=True)
    assert chosen.positions.tolist() == [0, second]


def test_an_opposite_vector_informs_the_linear_kernel_but_not_the_rbf(choose):
    candidates = [[0.6, 0.8], [-0.8, 0.6]]  # cosines 0.6 and -0.8
    assert choose([1, 0], candidates, 1, kernel=LinearKernel()).positions.tolist() == [1]
    assert choose([1, 0], candidates, 1, kernel=RBFKernel()).positions.tolist() == [0]


UNALIGNED = np.dtype([("pad", "b"), ("value", np.float64)])


def unaligned(array):
    """Return equal numbers that begin at odd addresses."""
    packed = np.zeros(array.shape, dtype=UNALIGNED)
    packed["value"] = array
    return packed["value"]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    "convert",
    [
        np.float64,
        np.float32,
        np.float16,
        np.longdouble,
        np.int16,
        np.uint8,
        np.ndarray.tolist,
        np.asfortranarray,
        lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
        lambda a: a[::-1].copy()[::-1],
        lambda a: a.astype(">f8"),
        lambda a: a.astype(object),
        unaligned,
    ],
    ids=lambda convert: convert.__name__,
)
def test_numbers_of_any_type_give_the_same_choice(backend, kernel, convert):
    query, candidates = (np.abs(np.rint(20 * a)) for a in random_pool(4))  # exact in every type
    settings = under(0.05, KERNELS[kernel])
    expected = SIFTSelector(backend="numpy", **settings).select(query, candidates, 6)
    chosen = SIFTSelector(backend=backend, **settings).select(
        convert(query), convert(candidates), 6
    )
    assert chosen.positions.tolist() == expected.positions.tolist()
    np.testing.assert_allclose(chosen.variances, expected.variances, rtol=0, atol=1e-12)
    assert chosen.variances.dtype == np.float64
    assert chosen.positions.dtype == np.intp


def test_the_fine_tuning_preset_is_the_papers_setting_with_repeats():
    preset = SIFTSelector.for_fine_tuning()
    assert preset == SIFTSelector(**under(0.01, LinearKernel()), allow_repeats=True)
    assert SIFTSelector.for_fine_tuning(**under(0.1)) == SIFTSelector(
        **under(0.1), allow_repeats=True
    )
