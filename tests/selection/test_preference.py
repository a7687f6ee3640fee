"""Which of the near-duplicates is chosen, and what candidates count beforehand."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sift_core import (
    ContextSelector,
    InvalidInputError,
    Preferences,
)
from sift_core.selection import context
from sift_core.selection.context import distinct
from sift_core.selection.near_duplicates import (
    LIKELY_NEAR,
    distances_to_earlier,
    near_duplicate_radius,
    nearest_earlier,
)
from tests.selection.facts import a_direction, copies_of, facts_about
from tests.selection.oracle import unit

some = settings(deadline=None, derandomize=True, max_examples=40)


def versions(seed, n_facts=25, n_copies=4):
    """Return a question, near-duplicates in random order, what each is of, and dates."""
    query = a_direction()
    rows, fact = copies_of(facts_about(query, n_facts), n_copies)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(rows))
    return query, rows[order], fact[order], rng.permutation(len(rows)).astype(float)


def classes_by_definition(query, candidates):
    """Return order and each sorted row's class, link by link: that of the nearest row above it."""
    rows = unit(np.asarray(candidates, dtype=np.float64))
    near = rows @ unit(query)
    order = sorted(range(len(rows)), key=lambda i: (-round(near[i], 12), i))
    rows = rows[order]
    cosines = rows @ rows.T
    typical = 1 - cosines[~np.eye(len(rows), dtype=bool)].mean()
    distance = distances_to_earlier(nearest_earlier(cosines), typical)
    radius = max(near_duplicate_radius(distance), LIKELY_NEAR)
    classes = []
    for i in range(len(rows)):
        if distance[i] > radius:
            classes.append(i)
        else:
            earlier = np.round(cosines[i, :i], 12).tolist()
            classes.append(classes[earlier.index(max(earlier))])
    return order, classes


@some
@given(seed=st.integers(0, 10_000), n_copies=st.integers(1, 6))
@pytest.mark.parametrize("backend", ["numpy", "numba"])
def test_of_each_class_the_highest_is_chosen(seed, n_copies, backend):
    query, rows, _, prefer = versions(seed, n_copies=n_copies)
    order, classes = classes_by_definition(query, rows)
    best = {
        own: max((order[i] for i in range(len(order)) if classes[i] == own), key=prefer.item)
        for own in set(classes)
    }
    chosen = ContextSelector(backend=backend).select(
        query, rows, len(best), preferences=Preferences(prefer=prefer)
    )
    assert sorted(chosen.positions.tolist()) == sorted(best.values())


@some
@given(seed=st.integers(0, 10_000))
@pytest.mark.parametrize("backend", ["numpy", "numba"])
def test_what_prefers_and_weighs_nothing_changes_nothing(seed, backend):
    query, rows, _, _ = versions(seed)
    selector = ContextSelector(backend=backend)
    plain = selector.select(query, rows, 30)
    level = selector.select(
        query, rows, 30, preferences=Preferences(prefer=np.zeros(100), prior=np.full(100, 7.0))
    )
    assert level.positions.tolist() == plain.positions.tolist()
    np.testing.assert_allclose(level.variances, plain.variances, rtol=1e-12)
    own = (rows @ query).tolist()
    relevant = selector.select(
        query, rows, 30, preferences=Preferences(prefer=own)
    )  # the most relevant is preferred
    assert relevant.positions.tolist() == plain.positions.tolist()


def test_ties_go_to_the_more_relevant_and_then_to_the_lower_position(backend):
    query = np.array([1.0, 0, 0])
    one, other = unit([0.9, 0.3, 0]), unit([0.9, 0.31, 0])
    rows = np.array([[0, 0, 1.0], other, one, one])
    chosen = ContextSelector(backend=backend).select(
        query, rows, 1, preferences=Preferences(prefer=np.ones(4))
    )
    assert chosen.positions.tolist() == [2]


def test_what_was_shown_stands_for_its_newer_versions_too(backend):
    query, rows, fact, prefer = versions(1)
    shown = rows[fact == fact[0]][:1]
    chosen = ContextSelector(backend=backend).select(
        query, rows, 24, preferences=Preferences(prefer=prefer), conditioned_on=shown
    )
    assert sorted(fact[chosen.positions]) == sorted(set(fact) - {fact[0]})
    for own in fact[chosen.positions]:
        assert prefer[fact == own].max() in prefer[chosen.positions]


def test_versions_of_versions_are_one_class():
    # Each a small step from the one before; the ends are further apart than near-duplicates.
    angles = np.deg2rad([0, 15, 30, 45])
    rows = np.column_stack([np.cos(angles), np.sin(angles), np.zeros(4)])
    rows = np.concatenate([rows, [[0, 0, 1.0]]])
    assert distinct([1.0, 0, 0], rows).tolist() == [0, 4]
    assert distinct([1.0, 0, 0], rows, prefer=[0, 1, 2, 3, 0]).tolist() == [3, 4]


@pytest.mark.parametrize("n_read", [25, 60, 100, 500])
def test_distinct_takes_the_preferred_of_the_same_classes(monkeypatch, n_read):
    monkeypatch.setattr(context, "MAX_REGION", n_read)
    query, rows, fact, prefer = versions(4)
    plain, preferred = distinct(query, rows), distinct(query, rows, prefer=prefer)
    assert fact[plain].tolist() == fact[preferred].tolist()
    assert prefer[preferred].tolist() == [prefer[fact == own].max() for own in fact[plain]]


def test_halving_a_weight_does_as_much_as_some_standard_deviations_less(backend):
    # 2 z = log 2: a chunk .347 deviations more relevant counts as much as one twice its weight.
    query, rows = a_direction(), facts_about(a_direction(), 40)
    nearness = unit(rows) @ unit(query)
    best, second = np.argsort(-nearness)[:2]
    ratio = np.exp(2 * (nearness[best] - nearness[second]) / nearness.std())
    selector = ContextSelector(backend=backend)
    for factor, expected in ((0.98, best), (1.02, second)):
        weight = np.full(40, 1e-9)  # the others count next to nothing
        weight[[best, second]] = 1.0, ratio * factor
        chosen = selector.select(query, rows, 1, preferences=Preferences(prior=weight))
        assert chosen.positions.tolist() == [expected]


def test_weights_may_be_of_any_size(backend):
    query, rows, _, _ = versions(3)
    weight = np.random.default_rng(3).uniform(0.1, 1, len(rows))
    selector = ContextSelector(backend=backend)
    usual, tiny = (
        selector.select(query, rows, 20, preferences=Preferences(prior=scale * weight))
        for scale in (1.0, 1e-300)
    )
    assert usual.positions.tolist() == tiny.positions.tolist()
    far_apart = np.where(np.arange(len(rows)) == 7, 1e300, 1e-300)
    chosen = selector.select(query, rows, 20, preferences=Preferences(prior=far_apart))
    assert chosen.positions[0] == 7


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"prefer": [1, 2]}, "`prefer` must have one number a candidate: 3 candidate"),
        ({"prefer": [1, 2, np.nan]}, "`prefer` must be finite"),
        ({"prefer": ["2024", "2023", "2022"]}, "`prefer` must hold real numbers"),
        ({"prior": [1, 2]}, "`prior` must have one number a candidate: 3 candidate"),
        ({"prior": [1, 2, np.inf]}, "`prior` must be finite"),
        ({"prior": [1, 0, 2]}, "`prior` must be > 0, got 0 at 1; leave out"),
    ],
)
def test_what_cannot_be_is_refused(given, said):
    with pytest.raises(InvalidInputError, match=re.escape(said)):
        ContextSelector().select(
            np.ones(2), np.eye(3, 2) + 0.1, 2, preferences=Preferences(**given)
        )
