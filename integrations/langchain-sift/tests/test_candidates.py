import numpy as np
import pytest
from langchain_core.documents import Document

from langchain_sift.candidates import (
    Candidates,
    cosines,
    refuse_options,
    store_failures,
)
from sift_core import CandidateSourceError, InvalidInputError, Query


def test_a_pool_by_hand():
    # cos((3, 4), (2, 0)) = 3 / 5 and cos((3, 4), (0, 2)) = 4 / 5.
    documents = [Document(page_content="a", id="x"), Document(page_content="b")]
    found = Candidates(
        documents=documents,
        embeddings=np.array([[2.0, 0.0], [0.0, 2.0]]),
        scores=[0.5, None],
        relevance=np.array([1.0, 2.0]),
    )
    pool = found.pool(Query(text="?", embedding=np.array([3.0, 4.0])))
    assert pool.document_ids == ("x", "1")
    assert pool.texts == ("a", "b")
    np.testing.assert_allclose(pool.similarities, [0.6, 0.8])
    assert pool.metadata == (
        {"document": documents[0], "score": 0.5},
        {"document": documents[1]},
    )
    assert pool.metadata[0]["document"] is documents[0]
    np.testing.assert_array_equal(pool.relevance, [1.0, 2.0])


def test_a_pool_without_documents_has_the_questions_dimension():
    found = Candidates(documents=[], embeddings=np.empty((0, 0)))
    pool = found.pool(Query(text="?", embedding=np.array([3.0, 4.0])))
    assert (len(pool), pool.embeddings.shape) == (0, (0, 2))


def test_a_pool_of_another_dimension_is_refused():
    found = Candidates(documents=[Document(page_content="a")], embeddings=np.ones((1, 3)))
    with pytest.raises(InvalidInputError, match="question has 2 dimensions, the documents have 3"):
        found.pool(Query(text="?", embedding=np.array([3.0, 4.0])))


@pytest.mark.parametrize("bad", [np.nan, np.inf], ids=str)
def test_a_pool_of_numbers_that_are_not_finite_is_refused(bad):
    found = Candidates(documents=[Document(page_content="a")], embeddings=np.array([[1.0, bad]]))
    with pytest.raises(InvalidInputError, match="`embeddings` must be finite"):
        found.pool(Query(text="?", embedding=np.array([3.0, 4.0])))


def test_cosines_do_not_depend_on_lengths_and_stay_in_range():
    query = np.array([[0.1, 0.2, 0.3]])
    rows = np.array([[1e-200, 2e-200, 3e-200], [-1e200, -2e200, -3e200], [2, -1, 0], [0, 0, 0]])
    found = cosines(query, rows)
    np.testing.assert_allclose(found, [[1, -1, 0, 0]], atol=1e-12)
    assert np.abs(found).max() <= 1


def test_cosines_leave_their_arguments_alone():
    rows = np.array([[3.0, 4.0]])
    cosines(rows, rows)
    np.testing.assert_array_equal(rows, [[3.0, 4.0]])


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
