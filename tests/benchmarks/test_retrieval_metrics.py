import pytest

from benchmarks.retrieval_metrics import mean, metrics

GOLD = frozenset({7, 8})


def test_metrics_by_hand():
    # 7 is the third choice, 8 the eleventh: one of two within 5 and 10, both within 20.
    chosen = [1, 2, 7, 3, 4, 5, 6, 9, 10, 11, 8]
    assert metrics(chosen, GOLD) == {
        "recall@5": 0.5,
        "recall@10": 0.5,
        "recall@20": 1.0,
        "all_gold@5": 0.0,
        "all_gold@10": 0.0,
        "all_gold@20": 1.0,
    }


def test_several_versions_of_a_gold_passage_are_found_once():
    assert metrics([7, 7, 7, 7, 7], GOLD)["recall@5"] == 0.5


def test_the_cut_is_inclusive():
    assert metrics([1, 2, 3, 4, 7], {7})["recall@5"] == 1.0
    assert metrics([1, 2, 3, 4, 5, 7], {7})["recall@5"] == 0.0


def test_mean_is_over_questions():
    assert mean([{"recall@5": 1.0}, {"recall@5": 0.5}]) == {"recall@5": pytest.approx(0.75)}
