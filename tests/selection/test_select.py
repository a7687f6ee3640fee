import numpy as np
import pytest

from sift_core import (
    ContextSelector,
    LazySIFTSelector,
    LinearKernel,
    RBFKernel,
    SIFTSelector,
    posterior_variances,
    select,
    selector_from_settings,
)
from sift_core.errors import InvalidInputError
from sift_core.types import StopReason
from tests.selection.oracle import assert_same, random_pool, under


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
@pytest.mark.parametrize(
    "use",
    [
        SIFTSelector,
        ContextSelector,
        LazySIFTSelector,
        lambda **settings: select(*random_pool(1), 2, **settings),
        lambda **settings: posterior_variances(*random_pool(1), **settings),
    ],
    ids=["paper", "context", "lazy", "function", "variances"],
)
def test_refuses_a_noise_variance_out_of_range(use, noise_variance):
    with pytest.raises(InvalidInputError, match="`noise_variance` must be a finite number > 0"):
        use(noise_variance=noise_variance)


@pytest.mark.parametrize("length_scale", [0, -1, np.nan, np.inf, 1e-200, 1e-160, 1e200])
def test_refuses_a_length_scale_out_of_range(length_scale):
    with pytest.raises(InvalidInputError, match=r"`length_scale` must be (a finite number )?> 0"):
        RBFKernel(length_scale=length_scale)


@pytest.mark.parametrize(
    ("settings", "selector"),
    [
        ({}, ContextSelector()),
        (under(0.5, alpha=1.0), ContextSelector(**under(0.5, alpha=1.0))),
        (
            under(0.7, LinearKernel(), allow_repeats=True, alpha=0.5),
            SIFTSelector(**under(0.7, allow_repeats=True, alpha=0.5)),
        ),
        ({"kernel": "rbf"}, SIFTSelector(**under(0.1, RBFKernel()))),
    ],
    ids=["defaults", "for a prompt", "all", "rbf"],
)
def test_the_function_chooses_as_the_selector_of_its_settings(settings, selector):
    chosen = select(*random_pool(9), 10, **settings)
    assert (chosen.stop_reason is StopReason.ALPHA) == ("alpha" in settings)
    assert_same(chosen, selector.select(*random_pool(9), 10), atol=0)


@pytest.mark.parametrize(
    ("kernel", "noise"),
    [(LinearKernel(), 0.01), ("linear", 0.01), (RBFKernel(), 0.1), ("rbf", 0.1)],
)
def test_one_kernel_has_one_default_for_the_noise(kernel, noise):
    assert selector_from_settings(kernel=kernel).noise_variance == noise
    if not isinstance(kernel, str):
        assert SIFTSelector(kernel=kernel).noise_variance == noise
