"""The rows of a small corpus, counted by hand."""

import numpy as np
import pytest

from benchmarks.dated_versions import DatedCorpus, measure
from benchmarks.retrieval import QuestionSet
from sift_core.evaluation.data import Question


def test_right_is_counted_by_hand():
    # Two passages in two versions: of the first the older one is nearer, of the second the newer.
    rows = [[1, 0, 0], [0, 1, 0], [0.99, 0.1, 0], [0.1, 0.99, 0]]
    corpus = DatedCorpus(
        condition="all in two",
        embeddings=np.array(rows, dtype=np.float32) / np.linalg.norm(rows, axis=1)[:, None],
        originals=np.array([0, 1, 0, 1]),
        dates=np.array([0.0, 1.0, 1.0, 0.0]),
    )
    asked = QuestionSet(
        name="two",
        passages=[],
        questions=[Question(question_id=str(i), text="?", grades={i: 1.0}) for i in range(2)],
        embeddings=np.eye(3, dtype=np.float32)[:2],
    )
    right = {row["method"]: row["right"] for row in measure(asked, corpus)}
    assert right == {"nearest": 0.5, "nearest, newest first": 1, "sift": 0.5, "sift, prefer": 1}
    assert [row["recall@10"] for row in measure(asked, corpus)] == pytest.approx([1] * 4)
