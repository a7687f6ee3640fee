import numpy as np
import pytest

from sift_core import LinearKernel, RBFKernel
from sift_core.selection.kernels import unit_rows

VECTORS = np.array([[3.0, 4.0], [1.0, 0.0], [0.0, -2.0]])  # lengths 5, 1, 2


@pytest.mark.parametrize("scale", [5e-324, 1e-310, 1e-160, 1.0, 1e160, 4e307])
def test_unit_rows_of_any_magnitude(scale):
    rows = unit_rows(np.array([[3.0, 4.0]]) * scale)
    # Below 1e-308 the input itself has few digits left: 4 · 5e-324 is exact, 3 · 5e-324 too.
    np.testing.assert_allclose(rows, [[0.6, 0.8]], rtol=1e-9)


def test_unit_rows_of_the_largest_half_precision_number_do_not_overflow():
    assert unit_rows(np.full((1, 4), 65504, dtype=np.float16)) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("kernel", "diagonal", "column"),
    [
        (LinearKernel(), [1, 1, 1], [1, 0.6, -0.8]),
        (LinearKernel(normalize=False), [25, 1, 4], [25, 3, -8]),
        # l² = 0.5: exp(0), exp(-0.8), exp(-3.6)
        (RBFKernel(length_scale=0.5**0.5), [1, 1, 1], np.exp([0, -0.8, -3.6])),
    ],
)
def test_kernels_by_hand(kernel, diagonal, column):
    features = kernel.features(VECTORS)
    assert kernel.diagonal(features) == pytest.approx(diagonal)
    assert kernel.column(features, features[0]) == pytest.approx(column)
    assert not np.shares_memory(features, VECTORS)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_steep_kernel_of_cosines_that_miss_one_by_rounding_is_one(dtype):
    steep = RBFKernel(length_scale=1e-3)
    missing = np.array([1.0, 1.0 - 2.2e-16, 1.0 - 6.7e-16, 1.0 + 4.4e-16], dtype=dtype)
    assert steep.of_cosines(missing).tolist() == [1.0] * 4


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_other_cosines_count_as_they_are(dtype):
    cosines = np.linspace(-1, 0.999, 50).astype(dtype)
    expected = np.exp(10 * (cosines.astype(np.float64) - 1))
    np.testing.assert_allclose(RBFKernel().of_cosines(cosines), expected, rtol=2e-13)
