"""Compiled code chooses what NumPy chooses."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

pytest.importorskip("numba", reason="needs the extra fast")

from sift_core import ContextSelector, LinearKernel, RBFKernel, SIFTSelector
from sift_core.selection import _numba, compiled
from tests.selection.oracle import under

KERNELS = [LinearKernel(), RBFKernel(), RBFKernel(length_scale=1.0)]

many = settings(deadline=None, derandomize=True, max_examples=150)

kernels = st.sampled_from(KERNELS)
seeds = st.integers(0, 2**32 - 1)
dtypes = st.sampled_from([np.float32, np.float64])
# Mostly without a stop, else of the size that these pools reach.
stops = st.fixed_dictionaries(
    {},
    optional={
        "alpha": st.floats(0.02, 3.0),
        "max_variance": st.floats(1e-4, 0.999),  # 1 is the prior, up to rounding
        "min_gain": st.floats(1e-8, 0.1),
    },
) | st.just({})


@st.composite
def pools(draw):
    """Return targets (t, d), weights and candidates (n, d) of floats."""
    rng = np.random.default_rng(draw(seeds))
    n, d, t = draw(st.integers(1, 60)), draw(st.integers(1, 40)), draw(st.integers(1, 4))
    kind, dtype = draw(st.sampled_from(["random", "copies", "clusters"])), draw(dtypes)
    candidates = rng.standard_normal((n, d))
    if kind == "copies":
        candidates = candidates[rng.integers(0, n // 3 + 1, n)]
    if kind == "clusters":
        centers = rng.standard_normal((n // 5 + 1, d))
        candidates = 0.03 * candidates + centers[rng.integers(0, len(centers), n)]
    candidates = candidates.astype(dtype)
    targets = rng.standard_normal((t, d)).astype(dtype)
    if draw(st.booleans()):  # a target equal to a candidate
        targets[0] = candidates[-1]
    return targets, rng.uniform(0.1, 3, t), candidates


def both(targets, weights, candidates, n_select, **settings):
    """Return what NumPy and what compiled code chooses."""
    if len(targets) == 1:
        targets, weights = targets[0], None
    return [
        SIFTSelector(backend=backend, **settings).select(
            targets, candidates, n_select, weights=weights
        )
        for backend in ("numpy", "numba")
    ]


def assert_same(expected, chosen, noise):
    assert chosen.positions.tolist() == expected.positions.tolist()
    assert chosen.stop_reason is expected.stop_reason
    assert chosen.positions.dtype == expected.positions.dtype == np.intp
    # 1 / λ is the most by which a posterior amplifies the rounding of kernel values.
    atol = (1e-10 + 1e-15 / noise) * max(1.0, expected.variances[0])
    np.testing.assert_allclose(chosen.variances, expected.variances, rtol=0, atol=atol)


@many
@given(pools(), kernels, st.floats(-6, 4), st.booleans(), st.integers(0, 80), stops)
def test_equals_numpy(pool, kernel, exponent, allow_repeats, n_select, stops):
    settings_ = under(10.0**exponent, kernel, allow_repeats=allow_repeats, **stops)
    assert_same(*both(*pool, n_select, **settings_), 10.0**exponent)


@many
@given(pools(), st.floats(-2, 2), st.integers(0, 80), stops)
def test_equals_numpy_for_a_prompt(pool, exponent, n_select, stops):
    targets, _, candidates = pool
    # The scale is the mean distance: in a pool of near copies it amplifies rounding.
    unit = candidates / np.linalg.norm(candidates, axis=1, keepdims=True)
    assume((unit @ unit.T).mean() < 0.99)
    expected, chosen = (
        ContextSelector(**under(10.0**exponent, backend=backend, **stops)).select(
            targets[0], candidates, n_select
        )
        for backend in ("numpy", "numba")
    )
    assert_same(expected, chosen, 10.0**exponent)


@pytest.mark.parametrize("allow_repeats", [True, False])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("n", [1023, 1024, 1025, 2500])
def test_equals_numpy_for_more_candidates_than_a_tile(n, kernel, allow_repeats):
    rng = np.random.default_rng(n)
    pool = rng.standard_normal((2, 16)), np.ones(2), rng.standard_normal((n, 16))
    assert_same(*both(*pool, 30, **under(0.1, kernel, allow_repeats=allow_repeats)), 0.1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_arrays_of_floats_do_run_compiled(dtype):
    rng = np.random.default_rng(0)
    query, candidates = rng.standard_normal((1, 8)), rng.standard_normal((9, 8)).astype(dtype)
    for array in (candidates, np.asfortranarray(candidates), candidates[::-1], candidates[:0]):
        assert compiled.read(query, array, 5) is not None
        chosen, expected = (
            SIFTSelector(backend=backend).select(query, array, 5).positions.tolist()
            for backend in ("numba", "numpy")
        )
        assert chosen == expected


@pytest.mark.parametrize(
    ("query", "candidates", "n_select"),
    [
        ([[1.0, 0]], np.eye(2), 1),
        (np.eye(2), np.eye(2).tolist(), 1),
        (np.ones(2), np.eye(2), 1),
        (np.eye(2), np.eye(2).astype(int), 1),
        (np.eye(2), np.eye(2, dtype=np.float16), 1),
        (np.eye(2), np.eye(2, dtype=np.longdouble), 1),
        (np.eye(2, dtype=np.longdouble), np.eye(2), 1),
        (np.eye(2), np.eye(2).astype(">f8"), 1),
        (np.eye(2), np.eye(3), 1),
        (np.ones((1, 1)), np.ones((3, 1)), 1),
        (np.eye(2), np.eye(2)[:1], 1),
        (np.empty((0, 2)), np.eye(2), 1),
        (np.eye(2), np.eye(2), 2**40),
    ],
)
def test_what_compiled_code_cannot_read_is_left_to_numpy(query, candidates, n_select):
    assert compiled.read(query, candidates, n_select) is None


@pytest.mark.parametrize("value", [0.0, np.nan, np.inf, 1e-300, 1e200, 5e-324])
@pytest.mark.parametrize("row", range(3))
def test_lengths_that_lose_digits_when_squared_are_left_to_numpy(value, row):
    candidates = np.ones((3, 4))
    candidates[row] = value
    good = np.ones((3, 4))
    assert compiled.read(good, good, 2) is not None
    for queries, rows in ((good, candidates), (candidates, good)):
        assert compiled.read(queries, rows, 2) is None


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("selector", [SIFTSelector, ContextSelector])
def test_read_only_arrays_are_chosen_from_without_being_compiled_for(selector, dtype):
    rng = np.random.default_rng(0)
    query, rows = rng.standard_normal(8).astype(dtype), rng.standard_normal((30, 8)).astype(dtype)
    expected = selector(backend="numba").select(query, rows, 5)
    query.flags.writeable = rows.flags.writeable = False
    compiled_for = len(_numba.greedy.signatures)
    chosen = selector(backend="numba").select(query, rows, 5)
    assert chosen.positions.tolist() == expected.positions.tolist()
    assert chosen.variances.tolist() == expected.variances.tolist()
    assert len(_numba.greedy.signatures) == compiled_for
