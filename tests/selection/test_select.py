import numpy as np
import pytest

from sift_core.errors import InvalidInputError
from sift_core.selection import (
    ContextSelector,
    LinearKernel,
    RBFKernel,
    SIFTSelector,
    select,
    selector_from_settings,
)
from sift_core.types import StopReason


def pool(seed, n=30, d=24):
    rng = np.random.default_rng(seed)
    return rng.standard_normal(d), rng.standard_normal((n, d)) + 0.4


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ContextSelector()),
        ({"kernel": "auto"}, ContextSelector()),
        (
            {"kernel": "auto", "noise_variance": 0.5, "alpha": 2.0},
            ContextSelector(noise_variance=0.5, alpha=2.0),
        ),
        ({"kernel": "linear"}, SIFTSelector()),
        (
            {"kernel": "linear", "noise_variance": 0.5, "allow_repeats": True, "alpha": 2.0},
            SIFTSelector(noise_variance=0.5, allow_repeats=True, alpha=2.0),
        ),
        ({"kernel": "rbf"}, SIFTSelector(kernel=RBFKernel(), noise_variance=0.1)),
        ({"kernel": RBFKernel()}, SIFTSelector(kernel=RBFKernel())),
        (
            {"kernel": "rbf", "length_scale": 0.7, "noise_variance": 0.01, "allow_repeats": True},
            SIFTSelector(
                kernel=RBFKernel(length_scale=0.7), noise_variance=0.01, allow_repeats=True
            ),
        ),
    ],
    ids=["defaults", "auto", "auto: all", "linear", "linear: all", "rbf", "a kernel", "rbf: all"],
)
def test_plain_settings_make_the_same_selector(settings, expected):
    selector = selector_from_settings(**settings)
    assert type(selector) is type(expected)
    assert selector == expected


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kernel": "cosine"}, "'linear' or a kernel, got 'cosine'"),
        ({"kernel": LinearKernel}, "'linear' or a kernel, got <class"),
        ({"kernel": None}, "'linear' or a kernel, got None"),
        ({"kernel": "linear", "length_scale": 1.0}, "`length_scale` has no effect"),
        ({"length_scale": 1.0}, "`length_scale` has no effect with kernel='auto'"),
        ({"kernel": "rbf", "length_scale": -1.0}, "`length_scale` must be"),
        ({"allow_repeats": True}, "`allow_repeats` has no meaning"),
        ({"noise_variance": 0}, "`noise_variance` must be"),
        ({"kernel": "rbf", "noise_variance": 0}, "`noise_variance` must be"),
        ({"alpha": -1}, "`alpha` must be"),
        ({"kernel": "linear", "alpha": -1}, "`alpha` must be"),
    ],
)
def test_plain_settings_are_refused(settings, message):
    with pytest.raises(InvalidInputError, match=message):
        selector_from_settings(**settings)


@pytest.mark.parametrize("backend", [None, "", "cuda", "NumPy"])
@pytest.mark.parametrize("selector", [SIFTSelector, ContextSelector])
def test_refuses_an_unknown_backend(selector, backend):
    with pytest.raises(InvalidInputError, match="`backend` must be 'auto', 'numpy' or 'numba'"):
        selector(backend=backend)


@pytest.mark.parametrize("noise_variance", [0, 0.0, -0.1, np.nan, np.inf, -np.inf])
def test_refuses_a_noise_variance_out_of_range(noise_variance):
    for selector in (SIFTSelector, ContextSelector):
        with pytest.raises(InvalidInputError, match="`noise_variance` must be a finite number > 0"):
            selector(noise_variance=noise_variance)
    for kernel in ("auto", LinearKernel()):
        with pytest.raises(InvalidInputError, match="noise_variance"):
            select(*pool(1), 2, kernel=kernel, noise_variance=noise_variance)


@pytest.mark.parametrize("length_scale", [0, -1, np.nan, np.inf, 1e-200, 1e200])
def test_refuses_a_length_scale_out_of_range(length_scale):
    with pytest.raises(InvalidInputError, match="`length_scale` must be"):
        RBFKernel(length_scale=length_scale)


def assert_equal(one, other):
    np.testing.assert_array_equal(one.positions, other.positions)
    np.testing.assert_array_equal(one.variances, other.variances)
    assert one.stop_reason is other.stop_reason


def test_the_function_chooses_for_a_prompt_by_default():
    assert_equal(select(*pool(9), 10), ContextSelector().select(*pool(9), 10))


def test_the_function_passes_settings_of_the_default_on():
    chosen = select(*pool(9), 10, noise_variance=0.5, alpha=1.0)
    expected = ContextSelector(noise_variance=0.5, alpha=1.0).select(*pool(9), 10)
    assert expected.stop_reason is StopReason.ALPHA
    assert_equal(chosen, expected)


@pytest.mark.parametrize(
    ("kernel", "noise_variance"),
    [(LinearKernel(), 0.01), ("linear", 0.01), (RBFKernel(), 0.1), ("rbf", 0.1)],
)
def test_one_kernel_has_one_default_for_the_noise(kernel, noise_variance):
    assert selector_from_settings(kernel=kernel).noise_variance == noise_variance
    if not isinstance(kernel, str):
        assert SIFTSelector(kernel=kernel).noise_variance == noise_variance
        by_class = SIFTSelector(kernel=kernel).select(*pool(9), 10)
        assert_equal(select(*pool(9), 10, kernel=kernel), by_class)


def test_the_function_passes_every_setting_on():
    settings = {
        "kernel": LinearKernel(),
        "noise_variance": 0.7,
        "allow_repeats": True,
        "alpha": 0.5,
    }
    by_function = select(*pool(9), 10, **settings)
    assert by_function.stop_reason is StopReason.ALPHA
    assert_equal(by_function, SIFTSelector(**settings).select(*pool(9), 10))


def test_the_function_refuses_repeats_without_a_kernel():
    with pytest.raises(InvalidInputError, match="`allow_repeats` has no meaning"):
        select(*pool(9), 2, allow_repeats=True)
