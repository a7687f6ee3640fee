import json

import numpy as np
import pytest
from langchain_core.documents import Document

from langchain_sift.choosing import chosen_documents
from sift_core import CandidatePool, Selection, StopReason


@pytest.fixture
def pool():
    originals = [
        Document(page_content="far"),
        Document(page_content="near", id="7", metadata={"a": [1]}),
        Document(page_content="between"),
    ]
    return CandidatePool(
        document_ids=["0", "7", "2"],
        texts=[each.page_content for each in originals],
        embeddings=np.array([[2.0, 0.0], [0.0, 2.0], [3.0, 4.0]]),
        similarities=np.array([0.6, 0.8, 1.0]),
        metadata=[
            {"document": originals[0]},
            {"document": originals[1], "score": 0.75},
            {"document": originals[2], "score": 0.25},
        ],
    )


def selection(positions, variances):
    return Selection(
        positions=np.array(positions),
        variances=np.array(variances),
        stop_reason=StopReason.N_SELECT,
    )


def test_chosen_documents_by_hand(pool):
    # Variances are made up and only carried over. cos((0, 2), (3, 4)) = 4 / 5,
    # cos((0, 2), (2, 0)) = 0, cos((3, 4), (2, 0)) = 3 / 5: the larger one counts.
    found = chosen_documents(pool, selection([1, 2, 0], [1.0, 0.25, 0.125, 0.0625]))
    assert [each.page_content for each in found] == ["near", "between", "far"]
    assert [each.metadata["sift"] for each in found] == [
        {
            "similarity": 0.8,
            "gain": 0.75,
            "variance_before": 1.0,
            "variance_after": 0.25,
            "redundancy": None,
            "score": 0.75,
        },
        {
            "similarity": 1.0,
            "gain": 0.125,
            "variance_before": 0.25,
            "variance_after": 0.125,
            "redundancy": pytest.approx(0.8),
            "score": 0.25,
        },
        {
            "similarity": 0.6,
            "gain": 0.0625,
            "variance_before": 0.125,
            "variance_after": 0.0625,
            "redundancy": pytest.approx(0.6),
        },
    ]


def test_the_explanation_can_be_written_as_json(pool):
    for found in chosen_documents(pool, selection([1, 2], [1.0, 0.25, 0.125])):
        assert json.loads(json.dumps(found.metadata["sift"])) == found.metadata["sift"]


def test_what_is_returned_shares_nothing_with_the_originals(pool):
    (found,) = chosen_documents(pool, selection([1], [1.0, 0.25]))
    original = pool.metadata[1]["document"]
    del found.metadata["sift"]
    assert found == original
    assert found.metadata["a"] is not original.metadata["a"]
    assert "sift" not in original.metadata
