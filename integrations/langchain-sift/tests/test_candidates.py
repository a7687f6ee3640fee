import numpy as np
import pytest
from langchain_core.documents import Document

from langchain_sift.candidates import (
    Candidates,
    chosen_documents,
    cosine_similarities,
    refuse_options,
    store_failures,
)
from sift_core import CandidateSourceError, InvalidInputError, Query, Selection, StopReason


def test_chosen_documents_by_hand():
    # cos((3, 4), (0, 2)) = 4 / 5; the variances are made up and only carried over.
    originals = [Document(page_content="far"), Document(page_content="near", metadata={"a": [1]})]
    (found,) = chosen_documents(
        Candidates(documents=originals, embeddings=np.array([[2.0, 0.0], [0.0, 2.0]])),
        Query(text="?", embedding=np.array([3.0, 4.0])),
        Selection(
            positions=np.array([1]),
            variances=np.array([1.0, 0.25]),
            stop_reason=StopReason.N_SELECT,
        ),
    )
    explanation = found.metadata.pop("sift")
    assert explanation == {
        "similarity": pytest.approx(0.8),
        "gain": 0.75,
        "variance_before": 1.0,
        "variance_after": 0.25,
    }
    assert all(type(value) is float for value in explanation.values())  # JSON takes them
    assert found == originals[1]
    assert found.metadata["a"] is not originals[1].metadata["a"]


def test_cosines_do_not_depend_on_lengths_and_stay_in_range():
    query = np.array([0.1, 0.2, 0.3])
    rows = np.array([[1e-30, 2e-30, 3e-30], [-1e15, -2e15, -3e15], [2, -1, 0]])
    cosines = cosine_similarities(query, rows)
    np.testing.assert_allclose(cosines, [1, -1, 0], atol=1e-12)
    assert np.abs(cosines).max() <= 1


def test_a_failure_names_store_place_cause_and_advice():
    with (
        pytest.raises(CandidateSourceError) as raised,
        store_failures({}, "collection 'a'", "try b"),
    ):
        raise AssertionError  # what Faiss raises has no text of its own
    assert str(raised.value) == "dict could not search collection 'a': AssertionError(); try b"


def test_no_options_are_not_refused():
    refuse_options({}, set())
    with pytest.raises(InvalidInputError, match=r"dict .*\['a', 'b'\]"):
        refuse_options({}, {"b", "a"})
