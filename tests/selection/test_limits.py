"""Budgets and caps per group: the exact greedy choice among what they allow, in both backends."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sift_core import (
    ContextSelector,
    InvalidInputError,
    Limits,
    LinearKernel,
    RBFKernel,
    SIFTSelector,
)
from sift_core.types import StopReason
from tests.selection.oracle import dense_kernel

KERNEL, NOISE = RBFKernel(length_scale=0.7), 0.1
some = settings(deadline=None, derandomize=True, max_examples=60)


def pool(seed, n=14, d=6):
    rng = np.random.default_rng(seed)
    return rng.standard_normal(d), rng.standard_normal((n, d)), rng


def variance_after(query, candidates, positions):
    """Return the variance at the query given looks at some candidates, from the whole matrix."""
    chosen = candidates[positions]
    gram = dense_kernel(KERNEL, chosen, chosen) + NOISE * np.eye(len(chosen))
    column = dense_kernel(KERNEL, chosen, query[None])[:, 0]
    return 1.0 - column @ np.linalg.solve(gram, column)


def greedy_by_worth(query, candidates, costs, budget, groups, most, start=()):
    """Return the positions of the greedy rule, each step computed from scratch."""
    chosen = list(start)
    while True:
        left = budget - sum(costs[i] for i in chosen)
        allowed = [
            i
            for i in range(len(candidates))
            if i not in chosen
            and costs[i] <= left + 1e-9
            and sum(groups[j] == groups[i] for j in chosen) < most
        ]
        if not allowed:
            return chosen
        before = variance_after(query, candidates, chosen)
        gains = [before - variance_after(query, candidates, [*chosen, i]) for i in allowed]
        chosen.append(allowed[int(np.argmax(np.array(gains) / [costs[i] ** 0.5 for i in allowed]))])


@some
@given(seed=st.integers(0, 10_000), budget=st.floats(0.5, 20), most=st.integers(1, 4))
@pytest.mark.parametrize("backend", ["numpy", "numba"])
def test_the_choice_is_the_greedy_one_by_gain_over_root_cost(seed, budget, most, backend):
    query, candidates, rng = pool(seed)
    costs, groups = rng.uniform(0.2, 5, len(candidates)), rng.integers(0, 5, len(candidates))
    falls = [1 - variance_after(query, candidates, [i]) for i in range(len(candidates))]
    # What is short and says less than a hundredth of the best does not fit.
    is_poor = (np.array(falls) < 0.01 * max(falls)) & (costs < np.median(costs))
    priced = np.where(is_poor, np.inf, costs)
    expected = greedy_by_worth(query, candidates, priced, budget, groups, most)
    fits = priced <= budget
    if fits.any():
        single = int(np.argmax(np.where(fits, falls, -np.inf)))
        if falls[single] > 1 - variance_after(query, candidates, expected):
            expected = greedy_by_worth(
                query, candidates, priced, budget, groups, most, start=[single]
            )
    selector = SIFTSelector(kernel=KERNEL, noise_variance=NOISE, backend=backend)
    limits = Limits(costs=costs, budget=budget, groups=groups, max_per_group=most)
    chosen = selector.select(query, candidates, limits=limits)
    assert chosen.positions.tolist() == expected
    np.testing.assert_allclose(
        chosen.variances[-1], variance_after(query, candidates, expected), atol=1e-9
    )
    assert chosen.stop_reason in (StopReason.LIMITS, StopReason.POOL_EXHAUSTED)


@pytest.mark.parametrize("selector_class", [SIFTSelector, ContextSelector])
def test_equal_costs_choose_as_if_they_were_counted(selector_class, backend):
    for seed in range(20):
        query, candidates, _ = pool(seed, n=40)
        selector = selector_class(backend=backend)
        counted = selector.select(query, candidates, 7)
        paid = selector.select(query, candidates, limits=Limits(costs=np.full(40, 0.1), budget=0.7))
        assert paid.positions.tolist() == counted.positions.tolist()
        np.testing.assert_array_equal(paid.variances, counted.variances)
        assert paid.stop_reason is StopReason.LIMITS


@pytest.mark.parametrize("selector_class", [SIFTSelector, ContextSelector])
def test_no_group_has_more_than_its_number(selector_class, backend):
    query, candidates, rng = pool(3, n=60)
    names = [f"file {i}" for i in rng.integers(0, 6, 60)]
    chosen = selector_class(backend=backend).select(
        query, candidates, 60, limits=Limits(groups=names, max_per_group=2)
    )
    counts = [sum(names[i] == name for i in chosen.positions) for name in set(names)]
    assert counts == [2] * 6
    assert chosen.stop_reason is StopReason.LIMITS


def test_with_repeats_a_budget_ends_the_choice_too(backend):
    query, candidates, _ = pool(0)
    selector = SIFTSelector(kernel=LinearKernel(), allow_repeats=True, backend=backend)
    limits = Limits(costs=np.full(14, 3.0), budget=100)
    chosen = selector.select(query, candidates, 50, limits=limits)
    assert (len(chosen), chosen.stop_reason) == (33, StopReason.LIMITS)
    with pytest.raises(InvalidInputError, match="only without repeats"):
        selector.select(query, candidates, limits=limits)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"n_select": None}, "`n_select` must be a whole number"),
        ({"groups": [1, 2, 3], "max_per_group": 1, "n_select": None}, "only without repeats"),
        ({"costs": [1, 2, 3]}, "`costs` limits nothing without `budget`"),
        ({"budget": 3}, "`budget` limits nothing without `costs`"),
        ({"max_per_group": 2}, "`max_per_group` limits nothing without `groups`"),
        ({"costs": [1, 2], "budget": 3}, "one number a candidate: 3 candidate"),
        ({"costs": [1, 0, 2], "budget": 3}, "`costs` must be > 0, got 0 at 1"),
        ({"costs": [1, 1e-13, 2], "budget": 3}, "`costs` must be within a factor of 1e+12"),
        ({"costs": [1, np.nan, 2], "budget": 3}, "`costs` must be finite"),
        ({"costs": [1, 1, 2], "budget": 0}, "`budget` must be"),
        ({"costs": [1, 1, 2], "budget": np.inf}, "`budget` must be"),
        ({"groups": "abc", "max_per_group": 1}, "got one text"),
        ({"groups": ["a"], "max_per_group": 1}, "one name a candidate: 3"),
        ({"groups": [[], [], []], "max_per_group": 1}, "names that can be compared"),
        ({"groups": [1, 1, 1], "max_per_group": 0}, "`max_per_group` must be >= 1"),
    ],
)
@pytest.mark.parametrize("selector", [SIFTSelector(), ContextSelector()])
def test_limits_that_cannot_be_are_refused(selector, given, said):
    def choose(n_select=2, **limits):
        selector.select(np.ones(2), np.eye(3, 2) + 0.1, n_select, limits=Limits(**limits))

    with pytest.raises(InvalidInputError, match=re.escape(said)):
        choose(**given)


@pytest.mark.parametrize("backend", ["numpy", "numba"])
def test_a_cap_of_any_size_is_one(backend):
    rows = np.random.default_rng(3).standard_normal((10, 4)).astype(np.float32)
    selector = ContextSelector(backend=backend)
    capped = selector.select(rows[0], rows, 3, limits=Limits(groups=[1] * 10, max_per_group=2**70))
    np.testing.assert_array_equal(capped.positions, selector.select(rows[0], rows, 3).positions)


@pytest.mark.parametrize(
    "values",
    [5, 5.0, {}, {0: 1}, {1, 2}, np.array(5), iter("ab")],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("pair", [("groups", "max_per_group"), ("costs", "budget")], ids=str)
def test_what_is_no_row_of_values_is_refused_by_name(pair, values):
    with pytest.raises(InvalidInputError, match=f"`{pair[0]}` must be a list of one value"):
        Limits(**{pair[0]: values, pair[1]: 1})
