import numpy as np
import pytest

from sift_core import (
    ContextSelector,
    LazySIFTSelector,
    Limits,
    LinearKernel,
    RBFKernel,
    SIFTSelector,
    posterior_variances,
    select,
)
from sift_core.errors import InvalidInputError
from sift_core.selection.select import selector_of
from tests.selection.oracle import assert_same, random_pool


@pytest.mark.parametrize(
    "limits", [None, Limits(groups=[i % 3 for i in range(30)], max_per_group=2)]
)
@pytest.mark.parametrize("selector", [None, SIFTSelector(noise_variance=0.7, alpha=0.5)])
def test_the_function_chooses_as_its_selector_does(selector, limits):
    chosen = select(*random_pool(9), 10, selector=selector, limits=limits)
    expected = (selector or ContextSelector()).select(*random_pool(9), 10, limits=limits)
    assert_same(chosen, expected, atol=0)


@pytest.mark.parametrize(
    ("kernel", "noise_variance", "expected"),
    [
        ("auto", None, ContextSelector()),
        ("auto", 0.5, ContextSelector(noise_variance=0.5)),
        ("linear", None, SIFTSelector(kernel=LinearKernel(), noise_variance=0.01)),
        ("rbf", None, SIFTSelector(kernel=RBFKernel(), noise_variance=0.1)),
        ("rbf", 0.5, SIFTSelector(kernel=RBFKernel(), noise_variance=0.5)),
    ],
)
def test_a_kernel_by_name_is_a_selector(kernel, noise_variance, expected):
    assert selector_of(kernel, noise_variance) == expected


@pytest.mark.parametrize(
    ("kind", "name", "values", "message"),
    [
        (RBFKernel, "length_scale", [0, -1, np.nan, np.inf, 1e-200, 1e200, "x"], "> 0"),
        (SIFTSelector, "noise_variance", [0, -0.1, np.nan, np.inf, "x", 10**400], "> 0"),
        (ContextSelector, "noise_variance", [0, np.inf], "> 0"),
        (LazySIFTSelector, "noise_variance", [0, np.inf], "> 0"),
        (SIFTSelector, "alpha", [0, -1.0, np.nan, "x"], "a number > 0"),
        (ContextSelector, "max_variance", [0, np.nan], "a number > 0"),
        (LazySIFTSelector, "min_gain", [0, np.nan], "a number > 0"),
        (SIFTSelector, "backend", [None, "cuda", "NumPy"], "'auto', 'numpy' or 'numba'"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_setting_out_of_range_is_refused_by_name(kind, name, values, message):
    for value in values:
        with pytest.raises(InvalidInputError, match=f"`{name}` must be .*{message}"):
            kind(**{name: value})


def test_functions_refuse_a_noise_variance_out_of_range():
    with pytest.raises(InvalidInputError, match="`noise_variance` must be a finite number > 0"):
        posterior_variances(*random_pool(1), noise_variance=0)


@pytest.mark.parametrize(("kernel", "noise"), [(LinearKernel(), 0.01), (RBFKernel(), 0.1)])
def test_one_kernel_has_one_default_for_the_noise(kernel, noise):
    assert SIFTSelector(kernel=kernel).noise_variance == noise
