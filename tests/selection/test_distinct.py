"""`distinct` against a slow definition, candidate by candidate."""

import numpy as np
import pytest

from sift_core.selection import context
from sift_core.selection.context import distinct
from sift_core.selection.near_duplicates import near_duplicate_radius
from tests.selection.facts import a_direction, copies_of, facts_about
from tests.selection.oracle import unit


def distinct_by_definition(query, candidates, relevance=None, n_read=500):
    """Return what `distinct` returns, candidate by candidate, without blocks."""
    rows = unit(np.asarray(candidates, dtype=np.float64))
    nearness = rows @ unit(np.asarray(query, dtype=np.float64))
    key = nearness if relevance is None else np.asarray(relevance, dtype=np.float64)
    order = sorted(range(len(rows)), key=lambda i: (-round(key[i], 12), i))
    rows = rows[order]
    near = rows[:n_read]
    n = len(near)
    unlike_query = 1 - (
        np.sort(nearness)[::-1][:n].mean() if relevance is not None else nearness[order[:n]].mean()
    )
    typical = max(1 - (near @ near.T)[~np.eye(n, dtype=bool)].mean(), unlike_query)
    novelty = [
        min([(1 - rows[i] @ rows[j]) / typical for j in range(i)] or [np.inf]) for i in range(n)
    ]
    radius = near_duplicate_radius(np.array([*novelty, 1.0]))
    is_first = [u > radius for u in novelty]
    for i in range(n, len(rows)):
        block = range(i - i % n_read, i)
        earlier = [j for j in range(i - i % n_read) if is_first[j]] + list(block)
        is_first.append(min((1 - rows[i] @ rows[j]) / typical for j in earlier) > radius)
    return [order[i] for i in range(len(rows)) if is_first[i]]


@pytest.mark.parametrize("n_copies", [1, 2, 4, 8])
def test_equals_the_definition(n_copies):
    query = a_direction()
    rows, _ = copies_of(facts_about(query, 30), n_copies)
    rows = np.random.default_rng(1).permutation(rows)
    assert distinct(query, rows).tolist() == distinct_by_definition(query, rows)
    relevance = np.random.default_rng(2).permutation(len(rows))
    found = distinct(query, rows, relevance=relevance).tolist()
    assert found == distinct_by_definition(query, rows, relevance=relevance)
    assert relevance[found[0]] == len(rows) - 1


@pytest.mark.parametrize("n_read", [25, 60, 119, 120])
def test_equals_the_definition_beyond_what_is_read(monkeypatch, n_read):
    monkeypatch.setattr(context, "MAX_REGION", n_read)
    query = a_direction()
    rows, fact = copies_of(facts_about(query, 20), 6)
    found = distinct(query, rows).tolist()
    assert found == distinct_by_definition(query, rows, n_read=n_read)
    assert sorted(fact[found]) == list(range(20))


@pytest.mark.parametrize("n", [20, 50, 200, 500])
@pytest.mark.parametrize("noise", [0.0, 0.15, 0.3])
def test_a_pool_of_one_text_in_many_versions_has_one_distinct_chunk(n, noise):
    # All distances are those of versions: measured by their mean they would all be far.
    query = a_direction()
    rows, _ = copies_of(facts_about(query, 1), n, noise=noise)
    assert len(distinct(query, rows)) == 1
