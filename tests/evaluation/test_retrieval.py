import io
import json
import sys

import numpy as np
import pytest

from sift_core import InvalidInputError
from sift_core.evaluation.data import Passage, Question, RetrievalSet
from sift_core.evaluation.embedding_cache import EmbeddingCache
from sift_core.evaluation.metrics import METRICS
from sift_core.evaluation.retrieval import (
    default_methods,
    evaluate_retrieval,
    measure,
    nearest_neighbors,
)
from sift_core.evaluation.search import Versions
from sift_core.testing import HashingEmbedder

WORDS = "ant bee cat dog elk fox gnu hen ibis jay kite lark mole newt owl pig ray seal toad".split()


@pytest.fixture
def cache(tmp_path):
    return EmbeddingCache(tmp_path / "cache", "hashing-64", HashingEmbedder)


def animals(name="animals", n=None):
    return RetrievalSet(
        name=name,
        passages=[
            Passage(passage_id=word, title=word, text=f"One {word}. And a pet.") for word in WORDS
        ],
        questions=[
            Question(question_id=f"q{i}", text=f"Where is the {word}?", grades={i: 1.0})
            for i, word in enumerate(WORDS[:n])
        ],
    )


def only(rows, **wanted):
    (row,) = [row for row in rows if wanted.items() <= row.items()]
    return row


@pytest.mark.parametrize("progress", [True, False])
def test_bars_are_shown_where_they_are_wanted(tmp_path, monkeypatch, progress):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stderr", shown := Terminal())
    cache = EmbeddingCache(tmp_path, "hashing-64", HashingEmbedder, progress=progress)
    evaluate_retrieval(animals(n=1), cache=cache, conditions=["as is"], progress=progress)
    assert ("embedding passages: 100%" in shown.getvalue()) is progress
    assert ("animals, as is: 100%" in shown.getvalue()) is progress
    assert bool(shown.getvalue()) is progress


def test_one_row_a_set_condition_and_method(cache):
    rows = evaluate_retrieval([animals(n=3), animals("beasts", n=2)], cache=cache)
    assert [(row["set"], row["condition"], row["method"]) for row in rows] == [
        (name, condition, method)
        for name in ("animals", "beasts")
        for condition in ("as is", "duplicates 4")
        for method in default_methods()
    ]
    for row in rows:
        assert row["values"] == "fractions"
        assert row["n_queries"] == (3 if row["set"] == "animals" else 2)
        assert set(METRICS) <= set(row)
        for metric in METRICS:
            low, high = row["ci"][metric]
            assert 0 <= low <= row[metric] <= high <= 1
        assert ("differences" in row) == (row["method"] == "sift")
        assert "per_query" not in row
    assert only(rows, set="animals", condition="as is", method="nn")["recall@5"] == 1.0
    assert json.loads(json.dumps(rows, allow_nan=False)) == rows


def test_copies_of_the_nearest_crowd_out_the_others(cache):
    both = [Question(question_id="q", text="ant or bee?", grades={0: 1.0, 1: 1.0})]
    one = RetrievalSet(name="s", passages=animals().passages, questions=both)
    rows = evaluate_retrieval(one, cache=cache, conditions=["duplicates"], n_versions=6)
    nearest, ours = (only(rows, method=name) for name in ("nn", "sift"))
    assert nearest["recall@5"] == 0.5
    assert ours["recall@5"] == 1.0
    assert ours["ndcg@10"] > nearest["ndcg@10"]
    assert ours["differences"]["nn"]["recall@5"] == {"mean": 0.5}  # one question: no interval
    assert ours["ci"] == {}


def test_a_method_sees_as_many_candidates_as_asked_for_and_copies_of_its_seed(cache):
    seen = []

    def own(pool, n):
        seen.append((len(pool.rows), n, pool.embeddings.sum()))
        return nearest_neighbors(pool, n)

    settings = {"cache": cache, "methods": {"own": own}, "conditions": ["duplicates"]}
    for n_candidates, seed in ((7, 0), (7, 0), (7, 1), (999, 0)):
        evaluate_retrieval(animals(n=1), **settings, n_candidates=n_candidates, seed=seed)
    assert [sizes for *sizes, _ in seen] == [[7, 20]] * 3 + [[4 * len(WORDS), 20]]
    assert seen[0] == seen[1] != seen[2]


def test_differences_are_paired(cache):
    rows = evaluate_retrieval(
        animals(n=6),
        cache=cache,
        conditions=["duplicates"],
        methods={
            "sift": lambda pool, n: nearest_neighbors(pool, n),
            "nn": lambda pool, n: nearest_neighbors(pool, n)[::-1],
            "mmr of mine": nearest_neighbors,
            "other": nearest_neighbors,
        },
        per_query=True,
    )
    ours = only(rows, method="sift")
    assert set(ours["differences"]) == {"nn", "mmr of mine"}
    assert ours["per_query"]["question_id"] == [f"q{i}" for i in range(6)]
    figures = [np.array(only(rows, method=name)["per_query"]["ndcg@10"]) for name in ("sift", "nn")]
    assert ours["ndcg@10"] == pytest.approx(figures[0].mean())
    found = ours["differences"]["nn"]["ndcg@10"]
    assert found["mean"] == pytest.approx(np.mean(figures[0] - figures[1]))
    assert found["ci"][0] <= found["mean"] <= found["ci"][1]
    # Equal on every question: no uncertainty, however much the questions differ.
    assert ours["differences"]["mmr of mine"]["ndcg@10"] == {"mean": 0.0, "ci": [0.0, 0.0]}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"conditions": ["plain"]}, "`conditions` must be"),
        ({"conditions": []}, "`conditions` must be"),
        ({"conditions": "as is"}, "`conditions` must be"),
        ({"methods": {}}, "`methods` must have"),
        ({"methods": {"own": "mmr"}}, "`methods` must have"),
        ({"n_candidates": 0}, "`n_candidates`"),
        ({"n_versions": 0}, "`n_versions`"),
    ],
)
def test_what_cannot_be_measured_is_refused(cache, options, message):
    with pytest.raises(InvalidInputError, match=message):
        evaluate_retrieval(animals(n=1), cache=cache, **options)


def test_embeddings_of_two_models_are_refused():
    versions = Versions(condition="as is", embeddings=np.eye(3), originals=np.arange(3))
    with pytest.raises(InvalidInputError, match="questions have 2 dimensions, passages 3"):
        measure("s", animals(n=2).questions, np.eye(2), versions, default_methods())
