"""What the selectors refuse, and what they say. Each backend refuses the same."""

import numpy as np
import pytest

from sift_core import (
    ContextSelector,
    LazySIFTSelector,
    LinearKernel,
    MMRSelector,
    NearestNeighborSelector,
    RBFKernel,
    SIFTSelector,
    select,
)
from sift_core.errors import InvalidInputError, NumericalError
from tests.selection.oracle import under

GOOD = np.ones((3, 4))
WAYS = {
    "paper, numpy": SIFTSelector(backend="numpy").select,
    "paper, numba": SIFTSelector(backend="numba").select,
    "context, numpy": ContextSelector(backend="numpy").select,
    "context, numba": ContextSelector(backend="numba").select,
    "function": select,
    "lazy": LazySIFTSelector().select,
    "nearest": NearestNeighborSelector().select,
    "mmr": MMRSelector().select,
}


@pytest.fixture(params=WAYS)
def choose_by(request):
    """Each way to choose from embeddings, as a function."""
    if "numba" in request.param:
        pytest.importorskip("numba", reason="needs the extra fast")
    return WAYS[request.param]


@pytest.mark.parametrize("n_select", [-1, 2.5, 3.0, np.nan, "3", None, [3], np.float64(3)])
def test_refuses_an_n_select_that_is_no_count(choose_by, n_select):
    with pytest.raises(InvalidInputError, match="`n_select` must be"):
        choose_by(GOOD[0], GOOD, n_select)


@pytest.mark.parametrize("kind", [np.int64, np.uint8, bool])
def test_takes_any_integer_for_n_select(choose_by, kind):
    assert len(choose_by(GOOD[0], GOOD, kind(1))) == 1


@pytest.mark.parametrize(
    ("query", "candidates", "message"),
    [
        ([1, 2, np.nan, 4], GOOD, r"`query` must be finite, got nan at \[2\]"),
        ([1, 2, np.inf, 4], GOOD, r"`query` must be finite, got inf at \[2\]"),
        ([1, 2, 3], GOOD, "must have 3 columns like the query, got 4; were both made by one"),
        ([0, 0, 0, 0], GOOD, "must not be all zero"),
        ([], GOOD, "at least 1 number"),
        ("abcd", GOOD, "`query` must hold real numbers"),
        ([1j, 0, 0, 0], GOOD, "`query` must hold real numbers"),
        (None, GOOD, "`query` must"),
        (1.0, GOOD, r"`query` must have 1 dimension\(s\), got shape \(\)"),
        (1.0, GOOD[:, :1], r"`query` must have 1 dimension\(s\), got shape \(\)"),
        (GOOD[None], GOOD, "`query` must have 1 dimension"),
        ([[1, 2, 3, 4], [1, 2]], GOOD, "`query` must be an array of numbers"),
        ([1, [2, 3], 4, 5], GOOD, "`query` must be an array of numbers"),
        ({"a": 1}, GOOD, "`query` must be an array of numbers"),
        (GOOD[0], [[1, 2, 3, np.nan]], r"`candidates` must be finite, got nan at \[0, 3\]"),
        (GOOD[0], [[1, 2, 3, -np.inf]], r"`candidates` must be finite, got -inf at \[0, 3\]"),
        (GOOD[0], [[1, 2, 3]], "`candidates` must have 4 columns like the query, got 3"),
        (GOOD[0], [[1, 2, 3, 4], [0, 0, 0, 0]], "must not be all zero, got such a vector in row 1"),
        (GOOD[0], GOOD[0], r"`candidates` must have 2 dimension\(s\), got shape \(4,\)"),
        (GOOD[0], GOOD[None], "`candidates` must have 2 dimension"),
        (GOOD[0], np.empty((3, 0)), "`candidates` must have 4 columns like the query, got 0"),
        (GOOD[0], [[1, 2, 3, 4], [1, 2]], "`candidates` must be an array of numbers"),
        (GOOD[0], ["abcd"], "`candidates` must hold real numbers"),
        (GOOD[0], "", "`candidates` must hold real numbers"),
        (GOOD[0], 5.0, "`candidates` must have 2 dimension"),
        (GOOD[0], None, "`candidates` must"),
        (GOOD[0], [[10**400, 1, 1, 1]], "`candidates` must be an array of numbers"),
    ],
)
def test_refuses_vectors_that_cannot_be_used(choose_by, query, candidates, message):
    with pytest.raises(InvalidInputError, match=message):
        choose_by(query, candidates, 2)
    # Compiled code reads arrays of floats alone: as such, too, where they are ones.
    try:
        arrays = [np.array(a, dtype=np.float64) for a in (query, candidates)]
    except (TypeError, ValueError, OverflowError):
        return
    with pytest.raises(InvalidInputError):
        choose_by(*arrays, 2)


@pytest.mark.parametrize(("value", "dtype"), [(0.0, np.float32), (np.nan, np.float32)])
@pytest.mark.parametrize("row", [0, 1, 2])
def test_refuses_an_unusable_row_wherever_it_stands(choose_by, value, dtype, row):
    candidates = GOOD.astype(dtype)
    candidates[row] = value
    with pytest.raises(InvalidInputError):
        choose_by(GOOD[0].astype(dtype), candidates, 2)


def test_refuses_what_only_a_longer_float_holds(choose_by):
    large = np.ones(4, dtype=np.longdouble) * np.longdouble("1e400")
    with pytest.raises(InvalidInputError, match="must fit into float64"):
        choose_by(large, GOOD, 2)
    with pytest.raises(InvalidInputError, match="must fit into float64"):
        choose_by(np.ones(4), np.stack([large, large]), 2)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("weights", [1.0], "`weights` must have one number a target: 2 target"),
        ("weights", [], "`weights` must have one number a target"),
        ("weights", [1.0, -1.0], "`weights` must be >= 0"),
        ("weights", [0.0, 0.0], "`weights` must be >= 0"),
        ("weights", [1e308, 1e308], "with a finite sum"),
        ("weights", [1.0, np.nan], "`weights` must be finite"),
        ("weights", np.eye(2), r"`weights` must have 1 dimension\(s\)"),
        ("weights", 1.0, r"`weights` must have 1 dimension\(s\)"),
        ("weights", "ab", "`weights` must hold real numbers"),
        ("conditioned_on", np.ones((2, 3)), "`conditioned_on` must have 4 columns"),
        ("conditioned_on", np.ones(4), r"`conditioned_on` must have 2 dimension\(s\)"),
        ("conditioned_on", [[1, 1, 1, np.nan]], "`conditioned_on` must be finite"),
        ("conditioned_on", np.zeros((1, 4)), "must not be all zero"),
        ("conditioned_on", [[1, 1, 1, 1], [1]], "`conditioned_on` must be an array"),
        ("conditioned_on", "abcd", "`conditioned_on` must hold real numbers"),
    ],
)
def test_refuses_options_that_cannot_be_used(backend, name, value, message):
    selector = SIFTSelector(backend=backend)
    with pytest.raises(InvalidInputError, match=message):
        selector.select(GOOD[:2], GOOD, 2, **{name: value})
    with pytest.raises(InvalidInputError):
        selector.select(GOOD[:2], GOOD[:0], 2, **{name: value})


@pytest.mark.parametrize("targets", [np.empty((0, 4)), np.empty((2, 0)), np.empty((0, 0))])
def test_refuses_no_target(backend, targets):
    with pytest.raises(InvalidInputError, match="`query` must have at least 1 number"):
        SIFTSelector(backend=backend).select(targets, GOOD, 2)


@pytest.mark.parametrize(
    ("row", "message"),
    [([0.0] * 4, "all zero"), ([1, 1, 1, np.nan], "`query` must be finite")],
)
def test_refuses_an_unusable_target_among_several(backend, row, message):
    with pytest.raises(InvalidInputError, match=message):
        SIFTSelector(backend=backend).select(np.array([GOOD[0], row]), GOOD, 2)


@pytest.mark.parametrize("value", [1e100, 1e200])
def test_says_so_when_raw_vectors_leave_the_range_of_float64(choose, value):
    # k(q, x)² must be representable: without scaling to unit length that ends near 1e77.
    with pytest.raises(NumericalError, match="normalize"):
        choose([value, 1], [[value, 2], [1, value]], 1, kernel=LinearKernel(normalize=False))


@pytest.mark.parametrize("noise", [5e-324, 1e-310, 1e-200])
@pytest.mark.parametrize("n_targets", [1, 3])
def test_says_so_when_the_noise_is_too_small(choose, noise, n_targets):
    # After six looks nothing but rounding is left, which division by λ may take beyond float64.
    messages = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        query, originals = rng.standard_normal((n_targets, 4)), rng.standard_normal((6, 4))
        settings = {"kernel": RBFKernel(length_scale=3.0), "noise": noise}
        try:
            chosen = choose(query, np.repeat(originals, 2, axis=0), 12, **settings)
        except NumericalError as error:
            messages.append(str(error))
        else:
            assert sorted(chosen.positions.tolist()) == list(range(12))
            assert (np.diff(chosen.variances) <= 0).all()
    assert messages
    assert all("`noise_variance`" in message for message in messages)


def test_says_so_too_when_it_looks_at_few():
    rng = np.random.default_rng(0)
    with pytest.raises(NumericalError, match="too small"):
        LazySIFTSelector(**under(1e-300)).select(
            rng.standard_normal(3), rng.standard_normal((9, 3)), 9
        )
    with pytest.raises(NumericalError, match="too large"):
        LazySIFTSelector(kernel=LinearKernel(normalize=False)).select([1e200], [[1e200]], 1)


RELEVANCE = [
    (np.ones(4), r"one number a candidate: 3 candidate\(s\), 4 number\(s\)"),
    ([], "one number a candidate"),
    ([1, 2, np.nan], "`relevance` must be finite"),
    (np.ones((3, 1)), "`relevance` must have 1 dimension"),
    (["a"] * 3, "`relevance` must hold real numbers"),
]


@pytest.mark.parametrize(("relevance", "message"), RELEVANCE)
@pytest.mark.parametrize("way", ["context, numpy", "nearest", "mmr"])
def test_refuses_relevance_that_does_not_fit(way, relevance, message):
    with pytest.raises(InvalidInputError, match=message):
        WAYS[way](GOOD[0], GOOD, 2, relevance=relevance)
