"""Odd inputs: each gives a valid selection or an error of this library."""

from collections import Counter

import numpy as np
import pytest

from sift_core import ContextSelector, LinearKernel, RBFKernel, SIFTSelector, select
from sift_core.errors import InvalidInputError, NumericalError
from sift_core.types import Selection, StopReason
from tests.selection.oracle import under

MAGNITUDES = [1e-320, 1e-310, 1e-200, 1e-100, 1e100, 1e200, 1e306]
KERNELS = [
    LinearKernel(),
    RBFKernel(),
    RBFKernel(length_scale=0.01),
    RBFKernel(length_scale=30.0),
    LinearKernel(normalize=False),
]
NOT_ARRAYS = [
    *(None, "", "abcd", b"ab", object(), {}, {"a": 1.0}, {1.0, 2.0}, 3, float("nan"), True),
    *([], (), [[]], [[[]]], [None], [[None, 1.0]], ["a", "b"], [1.0, [2.0]], [[1.0, 2.0], [3.0]]),
    *([10**400, 1], [[10**400, 1]], [1j, 2.0], [object()], range(3), range(0)),
    *(np.array(1.5), np.array(None), np.array([["a", "b"]]), np.array([1j, 2.0])),
    *(np.array(["2020-01-01"], dtype="datetime64[D]"), np.zeros(3, dtype=[("a", float)])),
    *(np.empty(0), np.empty((0, 0)), np.empty((3, 0)), np.empty((0, 3)), np.empty((0, 3, 4))),
    *(np.empty((0, 3), dtype="U1"), np.ones((2, 2, 2))),
    np.longdouble("1e4000") * np.ones((2, 3), dtype=np.longdouble),
]
COUNTS = [0, 1, 2, 3, 5, 9, 30, np.int64(3), np.uint8(2), True, np.array(2)]
NOT_COUNTS = [-1, 2.5, 3.0, float("nan"), "3", None, [1], np.float64(2), -(10**30), 1j]
ENDLESS = [10**4, 2**31, 2**63, 10**30]  # without repeats, which would take them at their word
POSITIVE = [1e-320, 1e-300, 1e-100, 1e-12, 1e-6, 0.01, 0.1, 1, 1.0, 100.0, 1e4, 1e100, 1e300]
NOT_POSITIVE = [0, -1.0, float("nan"), -np.inf, "0.1", [0.1], 1j, object()]
SPECIAL = [np.nan, np.inf, -np.inf, 5e-324, -5e-324, 1e-310, 1.7e308, 0.0, -0.0]


# NaN has no integer; what is too large becomes another number.
CONVERSIONS = [
    *[lambda a: a.astype(np.float32)] * 8,
    lambda a: a.astype(np.float16),
    lambda a: a.astype(np.longdouble),
    lambda a: a.astype(">f4"),
    lambda a: a.astype(object),
    lambda a: a.astype(str),
    lambda a: a.astype(complex),
    lambda a: np.nan_to_num(np.rint(a), nan=1, posinf=1, neginf=-1).clip(-99, 99).astype(np.int8),
    lambda a: a > 0,
    np.ndarray.tolist,
    list,
    np.ma.masked_invalid,
    np.asfortranarray,
    lambda a: a[::-1],
    lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    lambda a: a[None],
    lambda a: a.ravel(),
    lambda a: a[:0],
]


class Fuzzer:
    """Draws inputs: mostly sound ones with one or two oddities, as they come up in practice."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def chance(self, probability):
        return self.rng.random() < probability

    def one_of(self, values):
        return values[int(self.rng.integers(len(values)))]

    def matrix(self, n, d):
        rows = self.rng.standard_normal((n, d))
        if self.chance(0.1):
            rows = np.rint(2 * rows)  # integers with ties, zero rows among them
        if self.chance(0.3) and n:
            rows = rows[self.rng.integers(0, n // 2 + 1, n)]  # copies
        if self.chance(0.1):
            rows *= self.one_of(MAGNITUDES)
        elif self.chance(0.05):
            rows *= 10.0 ** self.rng.uniform(-300, 290, (n, 1))
        if self.chance(0.1) and rows.size:
            for _ in range(int(self.rng.integers(1, 3))):
                rows[self.rng.integers(n), self.rng.integers(d)] = self.one_of(SPECIAL)
        if self.chance(0.02) and n:
            rows[self.rng.integers(n)] = self.one_of([0.0, 5e-324, 1e300, np.nan])
        return rows

    def as_given(self, rows):
        """Return the numbers as they are, or in another type, layout or shape."""
        with np.errstate(all="ignore"):
            return self.one_of([np.asarray] * 24 + CONVERSIONS)(rows)

    def pool(self, kind):
        n, d = self.one_of([0, 1, 1, 2, 3, 5, 8, 13]), self.one_of([1, 2, 3, 5, 8])
        candidates = self.matrix(n, d)
        query = self.matrix(self.one_of([1, 1, 1, 1, 2, 3]), d if self.chance(0.95) else d + 1)
        if self.chance(0.2) and n and query.shape[1] == d:
            query[0] = candidates[0]
        query = query if self.chance(0.4 if kind == "paper" else 0.02) else query[0]
        query, candidates = self.as_given(query), self.as_given(candidates)
        if self.chance(0.04):
            query = self.one_of(NOT_ARRAYS)
        if self.chance(0.04):
            candidates = self.one_of(NOT_ARRAYS)
        return query, candidates, d

    def positive(self):
        return self.one_of(NOT_POSITIVE if self.chance(0.02) else POSITIVE)

    def settings(self, kind):
        """Return the settings of a selector, or of `select`, and whether it may repeat."""
        settings = {}
        if self.chance(0.6):
            settings |= under(self.positive())
        for name in ("alpha",) if kind == "select" else ("alpha", "max_variance", "min_gain"):
            if self.chance(0.1):
                settings[name] = self.positive()
        if kind == "paper" or (kind == "select" and self.chance(0.5)):
            settings["kernel"] = self.one_of(KERNELS)
            if self.chance(0.01):
                settings["kernel"] = self.one_of(["linear", RBFKernel, object(), 3])
            settings["allow_repeats"] = self.chance(0.5)
        return settings

    def options(self, kind, candidates, dimension):
        """Return what else `select` of this kind takes."""
        options = {}
        n = len(candidates) if isinstance(candidates, np.ndarray) and candidates.ndim else 3
        if kind != "select" and self.chance(0.2):
            shown = self.as_given(self.matrix(self.one_of([0, 1, 2, 5]), dimension))
            if self.chance(0.3) and isinstance(candidates, np.ndarray) and candidates.ndim:
                shown = candidates[:2]
            options["conditioned_on"] = self.one_of(NOT_ARRAYS) if self.chance(0.05) else shown
        if kind == "paper" and self.chance(0.2):
            length = self.one_of([1, 1, 1, 2, 3])
            change = self.one_of([np.abs, np.abs, np.asarray, np.zeros_like])
            weights = change(self.matrix(1, length)[0])
            options["weights"] = self.one_of(NOT_ARRAYS) if self.chance(0.05) else weights
        if kind == "context" and self.chance(0.3):
            relevance = self.as_given(self.matrix(1, n + self.chance(0.05))[0])
            options["relevance"] = self.one_of(NOT_ARRAYS) if self.chance(0.05) else relevance
        if self.chance(0.15):
            costs = self.rng.uniform(0.1, 9, n)
            if self.chance(0.05):
                costs = self.as_given(self.matrix(1, n)[0])
            options["costs"] = costs
            options["budget"] = self.positive()
        if self.chance(0.15):
            groups = self.rng.integers(0, 3, n)
            options["groups"] = self.one_of([groups, groups.tolist(), [str(g) for g in groups]])
            options["max_per_group"] = self.one_of([1, 1, 2, 3])
        return options

    def n_select(self, may_repeat):
        if self.chance(0.04):
            return self.one_of(NOT_COUNTS)
        if self.chance(0.04) and not may_repeat:
            return self.one_of(ENDLESS)
        return self.one_of(COUNTS)


def assert_valid(chosen, n, n_select, may_repeat):
    assert isinstance(chosen, Selection)
    assert (chosen.positions.dtype, chosen.variances.dtype) == (np.intp, np.float64)
    assert chosen.positions.ndim == chosen.variances.ndim == 1
    assert len(chosen.variances) == len(chosen) + 1 <= n_select + 1
    assert np.isfinite(chosen.variances).all()
    assert (chosen.variances >= 0).all()
    assert (np.diff(chosen.variances) <= 0).all()
    assert ((chosen.positions >= 0) & (chosen.positions < n)).all()
    if not may_repeat:
        assert len(set(chosen.positions.tolist())) == len(chosen)
    if chosen.stop_reason is StopReason.N_SELECT:
        assert len(chosen) == n_select
    if chosen.stop_reason is StopReason.POOL_EXHAUSTED:
        assert n == 0 or (len(chosen) == n and not may_repeat)


def most(n_select):
    """Return how many may be chosen; None, which a budget allows, leaves it to that."""
    return 10**18 if n_select is None else int(n_select)


def outcome_of(fuzzer, backend="auto"):
    """Return what an odd input leads to: why a valid selection ended, or an error of ours."""
    kind = fuzzer.one_of(["paper", "paper", "context", "select"])
    query, candidates, dimension = fuzzer.pool(kind)
    settings = fuzzer.settings(kind)
    may_repeat = settings.get("allow_repeats", False)
    n_select = fuzzer.n_select(may_repeat)
    options = fuzzer.options(kind, candidates, dimension)
    try:
        if kind == "select":
            chosen = select(query, candidates, n_select, **settings, **options)
        else:
            make = SIFTSelector if kind == "paper" else ContextSelector
            selector = make(**settings, backend=backend)
            chosen = selector.select(query, candidates, n_select, **options)
        assert_valid(chosen, len(candidates), most(n_select), may_repeat)
    except (InvalidInputError, NumericalError) as error:
        return type(error).__name__
    except Exception as error:
        given = kind, settings, query, candidates, n_select, options
        raise AssertionError(f"{given}") from error
    return chosen.stop_reason.value


@pytest.mark.parametrize("n_inputs", [2_000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_every_input_gives_a_valid_selection_or_an_error_of_ours(backend, n_inputs):
    fuzzer = Fuzzer(20_241_008)
    outcomes = Counter(outcome_of(fuzzer, backend) for _ in range(n_inputs))
    # The inputs are worth something only if they lead everywhere.
    reasons = {reason.value for reason in StopReason}
    assert outcomes.keys() == {"InvalidInputError", "NumericalError", *reasons}
    assert outcomes["InvalidInputError"] < 0.5 * n_inputs
