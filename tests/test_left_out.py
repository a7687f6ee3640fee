"""What a choice left out, and why."""

from dataclasses import replace

import numpy as np
import pytest

from sift_core import ChoiceOptions, ContextSelector, NearestNeighborSelector, Query, choose
from sift_core.left_out import left_out_line
from tests.test_question_names import BASE, make_pool


def choice(pool=None, question="What is the limit?", **options):
    query = Query(text=question, embedding=BASE)
    return choose(pool or make_pool(), query, ChoiceOptions(**{"n_select": 3, **options}))


def reasons(chosen):
    return [(one.document_id, one.reason, one.rank) for one in chosen.left_out]


def test_near_copies_of_a_chosen_passage():
    # Six versions of one text, c0 to c5, of which c3 is the most relevant; the others are unlike.
    chosen = choice()
    assert chosen.chunks.document_ids[0] == "c3"
    assert reasons(chosen) == [(f"c{i}", "near_copy", 1) for i in (0, 1, 2, 4, 5)]
    line = "5 near-copies left out: policy-2018.md, policy-2019.md, policy-2020.md and 2 more"
    assert left_out_line(chosen.left_out) == line
    assert chosen.as_dict()["left_out"][0] == {
        "document_id": "c0",
        "source": "policy-2018.md",
        "reason": "near_copy",
        "rank": 1,
    }
    assert chosen.first(0).left_out == ()


def test_older_versions():
    chosen = choice(newest="date")
    assert reasons(chosen) == [(f"c{i}", "older", 1) for i in range(5)]
    # The question's year wins, so that one copy is older and four are not.
    chosen = choice(question="in 2019", newest="date")
    assert reasons(chosen) == [
        (f"c{i}", "older" if i == 0 else "near_copy", 1) for i in (0, 2, 3, 4, 5)
    ]
    assert left_out_line(chosen.left_out).startswith("1 older version left out: policy-2018.md; 4 ")


def test_nothing_is_left_out_where_all_are_chosen_or_none_is_alike():
    assert choice(n_select=22).left_out == ()
    others = make_pool().take(range(6, 22))
    assert choice(others).left_out == ()
    assert "left_out" not in choice(others).as_dict()
    assert left_out_line(()) == ""
    assert choice(words=0, selector=NearestNeighborSelector()).left_out == ()  # it knows no copies


def test_a_full_document_and_a_used_up_budget():
    pool = make_pool().take(range(6, 22))
    pool = replace(pool, metadata=[{"source": "a" if row < 8 else "b"} for row in range(16)])
    pool = replace(pool, relevance=np.arange(16, 0, -1))  # the first eight, all of "a", lead
    chosen = choice(pool, n_select=4, max_per_document=1)
    # Of the four most relevant, all of "a", one is chosen.
    assert len(chosen.left_out) == 3
    assert {(one.source, one.reason) for one in chosen.left_out} == {("a", "max_per_document")}
    assert left_out_line(chosen.left_out) == "3 left out by max_per_document: a"
    named = replace(pool, metadata=[{"file": one["source"]} for one in pool.metadata])
    chosen = choice(named, n_select=4, max_per_document=1, document_key="file")
    assert left_out_line(chosen.left_out) == "3 left out by max_per_document: a"
    # 10 tokens each: two fit into 25, and of the four most relevant two do not.
    chosen = choice(pool, n_select=4, max_tokens=25, count_tokens=lambda text: 10)
    assert len(chosen) == 2
    names = set(pool.document_ids[:4]) - set(chosen.chunks.document_ids)
    assert {(one.document_id, one.reason) for one in chosen.left_out} == {
        (name, "max_tokens") for name in names
    }


def test_a_text_that_another_one_contains():
    # By their vectors these differ; the first text has all words of the second.
    pool = make_pool().take(range(6, 22))
    long = "Receipts are handed in within thirty days of the trip, by post or in the portal"
    texts = [long, long[:60], *pool.texts[2:]]
    pool = replace(pool, texts=texts, relevance=np.arange(16, 0, -1))
    chosen = choice(pool, n_select=4)
    assert "o0" in chosen.chunks.document_ids
    rank = chosen.chunks.document_ids.index("o0") + 1
    assert reasons(chosen) == [("o1", "near_copy", rank)]


@pytest.mark.parametrize("backend", ["numpy", "numba"])
def test_one_candidate_stands_for_each_class_in_any_order(backend):
    pool = make_pool()
    order = np.random.default_rng(0).permutation(len(pool))
    found = ContextSelector(backend=backend).select(BASE, pool.embeddings[order], 3)
    # Rows 0 to 5 are one class, for which row 3 stands; each other row stands for itself.
    expected = [3 if row < 6 else row for row in order]
    assert order[found.stands_for].tolist() == expected
