import numpy as np
import pytest

from sift_core import InvalidInputError
from sift_core.selection.scores import relevance_of_scores

COSINES = np.array([0.9, 0.7, 0.6, 0.1])


def relevance_of(scores, similarities, **options):
    ids = [f"document {i}" for i in range(len(scores))]
    return relevance_of_scores(scores, similarities, document_ids=ids, **options)


@pytest.mark.parametrize(
    "scores",
    [
        [0.9, 0.7, 0.6, 0.1],  # cosines
        [9.0, 7.0, 6.0, 1.0],  # inner products of unit vectors, scaled
        [0.2, 0.6, 0.8, 1.8],  # squared distances of unit vectors
        [0.9, 0.7, 0.6, 0.6],
        [0.5, 0.5, 0.5, 0.5],
        [None, None, None, None],
        [3.0, 1.0, None, 2.0],
        [3.0, 1.0, float("nan"), 2.0],
        [3.0, 1.0, float("inf"), 2.0],
    ],
    ids=str,
)
def test_scores_that_say_no_more_than_cosines_are_left_out(scores):
    assert relevance_of(scores, COSINES) is None


def test_rounding_to_float32_says_nothing():
    exact = np.array([0.5, 0.5 + 1e-9, 0.5 - 1e-9, 0.4])
    assert relevance_of([0.5000001, 0.5, 0.5, 0.4], exact) is None


@pytest.mark.parametrize(
    "scores", [[4.0, 1.0, 3.0, 2.0], [3.0, 3.0, 2.0, 2.5], [-1.0, -9.0, -2.0, -3.0]], ids=str
)
def test_scores_of_a_reranker_are_taken_as_they_are(scores):
    assert relevance_of(scores, COSINES).tolist() == scores


def test_scores_in_falling_order_are_of_a_reranker_even_against_all_cosines():
    scores = [4.0, 3.0, 2.0, 1.0]
    assert relevance_of(scores, COSINES[::-1]).tolist() == scores


def test_distances_that_say_more_than_cosines_are_negated():
    # Of vectors of different lengths: never falling, and not in the order of the cosines.
    relevance = relevance_of([0.1, 0.2, 0.2, 5.0], COSINES[[1, 0, 3, 2]])
    assert relevance.tolist() == [-0.1, -0.2, -0.2, -5.0]


@pytest.mark.parametrize("scores", [[0.9, 0.7, 0.6, 0.1], [0.2, 0.6, 0.8, 1.8]], ids=["cos", "L2"])
def test_documents_put_into_another_order_after_a_plain_search_say_nothing(scores):
    order = [0, 2, 3, 1]  # the best at both ends
    assert relevance_of([scores[i] for i in order], COSINES[order]) is None


def test_scores_that_must_be_used_are_used_even_if_they_say_nothing_new():
    scores = [0.9, 0.7, 0.6, 0.1]
    assert relevance_of(scores, COSINES, use_scores=True).tolist() == scores


def test_scores_that_must_not_be_used_are_not():
    assert relevance_of([4.0, 1.0, 3.0, 2.0], COSINES, use_scores=False) is None


def test_a_missing_score_that_must_be_used_is_refused_by_name():
    with pytest.raises(InvalidInputError, match=r"'document 2' has no finite score.* got None"):
        relevance_of([3.0, 1.0, None, 2.0], COSINES, use_scores=True)
