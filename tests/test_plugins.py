import numpy as np
import pytest

from sift_core import CandidatePool, InvalidInputError
from sift_core.plugins import fill_gaps, look_up_missing, pool_for_query

QUERY = np.array([3.0, 4.0])


def pool_of(query, embeddings, **options):
    n = len(embeddings)
    columns = {"document_ids": [str(i) for i in range(n)], "texts": ["text"] * n}
    return pool_for_query(CandidatePool, query, embeddings, **columns, **options)


def test_a_pool_by_hand():
    pool = pool_of(QUERY, [[2.0, 0.0], [0.0, 2.0]], scores=[None, 0.5])
    # cos((3, 4), (2, 0)) = 3 / 5 and cos((3, 4), (0, 2)) = 4 / 5.
    assert pool.similarities == pytest.approx([0.6, 0.8])
    assert pool.relevance is None
    assert pool.scores == [None, 0.5]
    assert pool_of(QUERY, []).embeddings.shape == (0, 2)


def test_scores_that_say_more_than_the_cosines_of_what_was_searched_by_are_the_relevance():
    rows, scores = np.eye(2), [2.0, 1.0]  # (3, 4) is nearer to the second row
    assert pool_of(QUERY, rows, scores=scores, use_scores=None).relevance.tolist() == scores
    by_first = pool_of(QUERY, rows, scores=scores, use_scores=None, searched_by=rows[0])
    assert by_first.relevance is None
    both = pool_of(np.array([[1.0, 0.0], [0.0, 1.0]]), rows)
    assert both.similarities.tolist() == [1.0, 1.0]  # with the nearest of the queries


@pytest.mark.parametrize(
    ("second", "complaint"),
    [
        ([1.0, 0.0, 0.0], r"query has 2 dimensions, the documents have \[2, 3\]"),
        ([np.nan, 1.0], r"must be finite, got nan at \[1, 0\]"),
        ([np.inf, 1.0], r"must be finite, got inf at \[1, 0\]"),
    ],
    ids=["length", "nan", "infinite"],
)
@pytest.mark.filterwarnings("error")
def test_vectors_that_cannot_be_compared_are_refused(second, complaint):
    with pytest.raises(InvalidInputError, match=complaint):
        pool_of(QUERY, [[1.0, 0.0], second])


def test_missing_vectors_are_looked_up_by_id_in_their_places():
    known = {"b": [2.0], "c": [3.0]}
    found = look_up_missing([None, [1.0], None, None], ["b", "a", "x", None], lambda ids: known)
    assert found == [[2.0], [1.0], None, None]
    assert look_up_missing([None], ["b"], None) == [None]
    matrix = np.eye(2)
    assert fill_gaps([None, None], matrix) is matrix


def test_an_id_that_several_documents_share_is_not_looked_up():
    asked = []
    found = look_up_missing(
        [None] * 3, ["a", "b", "a"], lambda ids: asked.extend(ids) or {"b": [2]}
    )
    assert (found, asked) == ([None, [2], None], ["b"])
