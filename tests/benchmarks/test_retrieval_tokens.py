"""Budgets filled by hand, and the rivals against what their papers and stores say."""

import numpy as np
import pytest
from qdrant_client import QdrantClient, models

from benchmarks import retrieval_tokens
from benchmarks.retrieval import read_set
from benchmarks.retrieval_methods import adagres, gist, mmr
from benchmarks.retrieval_tokens import BUDGETS, CEILING, Priced, bars_of, corpora, filled, measure
from sift_core.evaluation.search import pools


def pool_of(n, d=16, common=0.0):
    """Random rows around a direction: no cosine is negative where `common` is large."""
    rows = np.random.default_rng(0).standard_normal((n + 1, d), dtype=np.float32) + common
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return next(pools(rows[:1], rows[1:]))


def test_what_does_not_fit_is_skipped_and_what_is_not_in_the_order_comes_last():
    priced = Priced(pool=pool_of(5), costs=np.array([5, 1, 4, 3, 2]), budget=10)
    assert filled(np.array([2, 0, 3]), priced).tolist() == [2, 0, 1]
    assert filled(np.array([], dtype=int), priced).tolist() == [0, 1, 2]
    assert priced.n_expected == 3


def test_the_default_keeps_the_budget_that_it_is_told():
    priced = Priced(pool=pool_of(50), costs=np.arange(50) % 9 + 1, budget=30)
    chosen = retrieval_tokens.with_budget(priced)
    assert priced.costs[chosen].sum() <= 30
    assert len(set(chosen.tolist())) == len(chosen) > 3


def test_adagres_equals_the_best_set_one_by_one():
    pool = pool_of(30)
    rows, near = pool.embeddings.astype(float), pool.similarities.astype(float)
    pairs = [rows[i] @ rows[j] for i in range(30) for j in range(i)]
    beta = near.mean() / (3 / 2 * np.mean(pairs))  # four expected

    def worth(chosen):
        within = sum(rows[i] @ rows[j] for k, i in enumerate(chosen) for j in chosen[:k])
        return sum(near[i] for i in chosen) - beta * within

    expected = []
    for _ in range(6):
        free = [i for i in range(30) if i not in expected]
        expected.append(max(free, key=lambda i: worth([*expected, i])))
    assert adagres(pool, 6, n_expected=4).tolist() == expected


def test_gist_has_the_nearest_where_distance_is_worth_nothing():
    pytest.importorskip("divsel")
    pool = pool_of(30)
    assert sorted(gist(pool, 5, weight=0.0).tolist()) == [0, 1, 2, 3, 4]
    assert sorted(gist(pool, 5, weight=100.0).tolist()) != [0, 1, 2, 3, 4]


@pytest.mark.parametrize("weight", [0.3, 0.5, 0.9])
def test_mmr_of_qdrant_is_mmr(weight):
    pool = pool_of(40, common=3.0)
    assert (pool.embeddings @ pool.embeddings.T).min() > 0  # pyversity counts less as nothing
    client = QdrantClient(":memory:")
    distance = models.VectorParams(size=16, distance=models.Distance.COSINE)
    client.create_collection("pool", vectors_config=distance)
    client.upsert(
        "pool",
        [
            models.PointStruct(id=i, vector=row.tolist(), payload={})
            for i, row in enumerate(pool.embeddings)
        ],
    )
    told = models.Mmr(diversity=1 - weight, candidates_limit=40)
    found = client.query_points(
        "pool", query=models.NearestQuery(nearest=pool.query.tolist(), mmr=told), limit=10
    )
    assert [point.id for point in found.points] == mmr(pool, 10, weight=weight).tolist()


def test_a_small_set_has_one_row_a_budget_and_method(data, cache):
    questions = read_set(
        data / "corpus/animals/corpus.jsonl.gz",
        data / "dev/animals/queries.jsonl.gz",
        at_most=3,
        seed=0,
        cache=cache,
    )
    rows = [row for one in corpora(questions, 0, cache) for row in measure(questions, one)]
    assert {row["condition"] for row in rows} == {"as is", "variants 4"}
    names = [row["method"] for row in rows]
    assert names.count("sift") == names.count(CEILING) == 2 * len(BUDGETS)
    assert all(0.0 <= row["recall"] <= 1.0 for row in rows)


def test_bars_are_against_the_best_setting_and_against_twice_the_tokens():
    rows = [
        {"condition": condition, "set": "animals", "budget": budget, "method": name, "recall": one}
        for condition in ("as is", "variants 4")
        for budget, recalls in ((256, (0.5, 0.6, 0.62, 0.9)), (512, (0.61, 0.7, 0.7, 0.9)))
        for name, one in zip(("nn", "sift", "mmr .5", CEILING), recalls, strict=True)
    ]
    found = {one["name"]: one for one in bars_of(rows, {"animals, as is": 1.2})}
    assert found["animals, as is, 256 tokens: recall in points against mmr .5"]["bar"] == 61.5
    twice = "256 tokens: recall in points against nn with twice as many"
    assert found[f"animals, as is, {twice}"]["bar"] == 58.0
    assert found[f"animals, variants 4, {twice}"]["bar"] == 61.0
    assert [one["pass"] for one in found.values()] == [False, True, True, False, False, True, True]
