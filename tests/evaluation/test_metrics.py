from itertools import permutations
from math import log2

import numpy as np
import pytest

from sift_core import InvalidInputError
from sift_core.evaluation.metrics import METRICS, all_metrics, alpha_ndcg, ndcg

GOLD = {7: 1.0, 8: 1.0}


def test_metrics_by_hand():
    # 7 is the fifth choice, 8 the eleventh: one of two within 5 and 10, both within 20.
    chosen = [1, 2, 3, 4, 7, 5, 6, 9, 10, 11, 8]
    gain = (1 / log2(6)) / (1 / log2(2) + 1 / log2(3))
    found = all_metrics(chosen, GOLD)
    assert found == {
        "recall@5": 0.5,
        "recall@10": 0.5,
        "recall@20": 1.0,
        "all_gold@5": 0.0,
        "all_gold@10": 0.0,
        "all_gold@20": 1.0,
        "ndcg@10": pytest.approx(gain),
        "alpha_ndcg@10": pytest.approx(gain),
    }
    assert tuple(found) == METRICS
    assert set(all_metrics([], GOLD).values()) == {0.0}


def test_several_versions_of_a_gold_passage_are_found_once():
    found = all_metrics([7, 7, 7, 7, 7], GOLD, {7: 5, 8: 5, 9: 5})
    assert found["recall@5"] == 0.5
    # Only the first 7 gains; the ideal has 7 and 8 in places 1 and 2.
    assert found["ndcg@10"] == pytest.approx(1 / (1 + 1 / log2(3)))


@pytest.mark.parametrize("cut", [1, 3, 10])
@pytest.mark.parametrize("seed", range(20))
def test_ndcg_equals_pytrec_eval(seed, cut):
    pytrec_eval = pytest.importorskip("pytrec_eval")
    rng = np.random.default_rng(seed)
    judged = rng.choice(40, rng.integers(1, 20), replace=False)
    grades = {int(row): int(rng.integers(1, 4)) for row in judged}
    chosen = rng.permutation(40)[: rng.integers(1, 30)].tolist()
    judge = pytrec_eval.RelevanceEvaluator(
        {"q": {str(row): grade for row, grade in grades.items()}}, {f"ndcg_cut.{cut}"}
    )
    run = {str(row): float(-place) for place, row in enumerate(chosen)}
    theirs = judge.evaluate({"q": run})["q"][f"ndcg_cut_{cut}"]
    assert ndcg(chosen, grades, cut) == pytest.approx(theirs, abs=1e-9)


def dcg_by_definition(chosen, gold, alpha):
    """Return Clarke et al.'s eq. 2 and 3 term by term."""
    total = 0.0
    for place, row in enumerate(chosen):
        if row in gold:
            total += (1 - alpha) ** chosen[:place].count(row) / log2(place + 2)
    return total


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("seed", range(10))
def test_alpha_ndcg_equals_the_best_of_all_orders(seed, alpha):
    rng = np.random.default_rng(seed)
    n_versions = {row: int(rng.integers(1, 4)) for row in range(rng.integers(1, 3))}
    documents = [row for row, n in n_versions.items() for _ in range(n)] + [98, 99]
    documents = rng.permutation(documents).tolist()
    cut = int(rng.integers(1, 6))
    ideal = max(dcg_by_definition(order, n_versions, alpha) for order in _orders(documents, cut))
    expected = dcg_by_definition(documents[:cut], n_versions, alpha) / ideal
    assert alpha_ndcg(documents, n_versions, cut, alpha) == pytest.approx(expected, abs=1e-12)


def _orders(documents, cut):
    return set(permutations(documents, min(cut, len(documents))))


def test_any_cut_can_be_asked_for():
    found = all_metrics([7, 1, 8], {7: 1.0, 8: 1.0}, names=("recall@1", "all_gold@3", "ndcg@2"))
    # of two gold rows the first is 7; the ideal order gains 1 + 1 / log2(3), this one 1
    assert found == pytest.approx({"recall@1": 0.5, "all_gold@3": 1.0, "ndcg@2": 0.6131}, abs=1e-4)


@pytest.mark.parametrize("name", ["recall", "recall@0", "recall@-1", "recall@1.5", "mrr@10", ""])
def test_a_metric_that_is_none_is_refused(name):
    with pytest.raises(InvalidInputError, match=r"there is no metric .*recall@n"):
        all_metrics([1], {1: 1.0}, names=[name])
