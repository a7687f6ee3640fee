"""Pairs of questions on a corpus that is counted by hand."""

import numpy as np

from benchmarks.several_questions import N_CHOSEN, Asked, choosers, fused, measure
from sift_core.evaluation.search import Versions


def test_recall_and_both_are_counted_by_hand():
    # Ten near each question; of the joined vector's nearest ten all are the first's.
    d = 40
    rows = np.eye(d, dtype=np.float32)
    embeddings = np.concatenate([rows[0] + 0.5 * rows[2:22], rows[1] + 0.5 * rows[22:]])
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    joined = (rows[0] + 0.5 * rows[1]) / 1.25**0.5
    asked = Asked(each=rows[:2], joined=joined, gold=(frozenset({0}), frozenset({20})))
    versions = Versions(condition="as is", embeddings=embeddings, originals=np.arange(38))
    found = {row["method"]: row for row in measure("two", [asked], versions, choosers())}
    assert (found["nn, joined"]["recall"], found["nn, joined"]["both"]) == (0.5, 0)
    assert (found["nn, each"]["recall"], found["nn, each"]["both"]) == (1, 1)
    assert (found["sift, two"]["recall"], found["sift, two"]["both"]) == (1, 1)


def test_ranks_are_fused():
    assert fused([np.array([3, 1]), np.array([1, 2])]).tolist() == [1, 3, 2]
    assert len(fused([np.arange(20)])) == N_CHOSEN == 10
