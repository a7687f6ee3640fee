"""What every selector does with little, with much and with equals, whatever it goes by."""

import numpy as np
import pytest

from sift_core import (
    ContextSelector,
    LazySIFTSelector,
    MMRSelector,
    NearestNeighborSelector,
    RBFKernel,
    SIFTSelector,
    posterior_variances,
)
from sift_core.errors import InvalidInputError
from sift_core.types import StopReason
from tests.selection.oracle import random_pool

SELECTORS = {
    "paper, numpy": SIFTSelector(backend="numpy"),
    "paper, numba": SIFTSelector(backend="numba"),
    "rbf, numpy": SIFTSelector(kernel=RBFKernel(), backend="numpy"),
    "rbf, numba": SIFTSelector(kernel=RBFKernel(), backend="numba"),
    "context, numpy": ContextSelector(backend="numpy"),
    "context, numba": ContextSelector(backend="numba"),
    "lazy": LazySIFTSelector(),
    "nearest": NearestNeighborSelector(),
    "mmr": MMRSelector(),
}
REPEATING = {
    "paper, numpy": SIFTSelector(allow_repeats=True, backend="numpy"),
    "paper, numba": SIFTSelector(allow_repeats=True, backend="numba"),
    "lazy": LazySIFTSelector(allow_repeats=True),
}


@pytest.fixture(params=SELECTORS)
def selector(request):
    if "numba" in request.param:
        pytest.importorskip("numba", reason="needs the extra fast")
    return SELECTORS[request.param]


@pytest.fixture(params=REPEATING)
def repeating(request):
    if "numba" in request.param:
        pytest.importorskip("numba", reason="needs the extra fast")
    return REPEATING[request.param]


def assert_nothing_was_there(chosen):
    assert chosen.positions.shape == (0,)
    assert chosen.positions.dtype == np.intp
    assert chosen.variances.tolist() == pytest.approx([1.0])
    assert chosen.stop_reason is StopReason.POOL_EXHAUSTED


@pytest.mark.parametrize("n_select", [3, 10**30])
@pytest.mark.parametrize(
    "empty", [[], np.empty((0, 4)), np.empty((0, 3), dtype=np.float32), np.empty((0, 0))]
)
def test_an_empty_pool_is_exhausted_at_once(selector, empty, n_select):
    assert_nothing_was_there(selector.select(np.ones(4), empty, n_select))


def test_an_empty_pool_has_nothing_to_repeat_and_takes_no_memory_for_what_was_asked(repeating):
    for empty, n_select in (([], 3), (np.empty((0, 4)), 10**8)):
        assert_nothing_was_there(repeating.select(np.ones(4), empty, n_select))


@pytest.mark.parametrize("candidates", [np.eye(4), []])
def test_none_are_chosen_where_none_are_asked_for(selector, candidates):
    chosen = selector.select(np.ones(4), candidates, 0)
    assert chosen.positions.tolist() == []
    assert chosen.variances.tolist() == pytest.approx([1.0])
    assert chosen.stop_reason is StopReason.N_SELECT


def test_one_candidate_in_one_dimension_is_chosen(selector):
    assert selector.select([2.0], [[-3.0]], 1).positions.tolist() == [0]


@pytest.mark.parametrize("n_select", [12, 10**4, 2**31, 2**63, 2**64, 10**30])
def test_of_more_than_there_are_every_candidate_comes_once(selector, n_select):
    chosen = selector.select(*random_pool(2, n=5), n_select)
    assert sorted(chosen.positions.tolist()) == list(range(5))
    assert chosen.variances.shape == (6,)
    assert chosen.stop_reason is StopReason.POOL_EXHAUSTED


@pytest.mark.parametrize("n_select", [12, 200])
def test_with_repeats_there_are_as_many_as_asked_for(repeating, n_select):
    chosen = repeating.select(*random_pool(2, n=5), n_select)
    assert len(chosen) == n_select
    assert set(chosen.positions.tolist()) <= set(range(5))
    assert chosen.stop_reason is StopReason.N_SELECT


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_input_is_left_as_it_was(selector, dtype):
    query, candidates = random_pool(8, n=15, d=6, dtype=dtype)
    before = query.copy(), candidates.copy()
    query.flags.writeable = candidates.flags.writeable = False
    assert len(selector.select(query, candidates, 6)) == 6
    np.testing.assert_array_equal(query, before[0])
    np.testing.assert_array_equal(candidates, before[1])


@pytest.mark.parametrize("d", [3, 100, 768])
def test_copies_are_chosen_from_the_lowest_position_up(selector, d):
    for seed in range(6):
        rng = np.random.default_rng(seed)
        labels = rng.permutation(np.arange(int(rng.integers(10, 200))) % 5)
        originals = rng.standard_normal((5, d))
        chosen = selector.select(rng.standard_normal(d), originals[labels], len(labels))
        for label in range(5):
            copies = np.flatnonzero(labels == label).tolist()
            assert [i for i in chosen.positions.tolist() if labels[i] == label] == copies


@pytest.mark.parametrize("baseline", [NearestNeighborSelector(), MMRSelector()])
def test_a_baseline_reports_the_variances_of_its_choice(baseline):
    query, candidates = random_pool(7, n=15, d=6)
    chosen = baseline.select(query, candidates, 6)
    expected = posterior_variances(query, candidates[chosen.positions])
    np.testing.assert_allclose(chosen.variances, expected, rtol=1e-12)


@pytest.mark.parametrize("baseline", [NearestNeighborSelector(), MMRSelector()])
def test_the_nearest_to_several_queries_are_not_defined(baseline):
    with pytest.raises(InvalidInputError, match="1 dimension"):
        baseline.select(np.eye(2), np.eye(2), 1)
