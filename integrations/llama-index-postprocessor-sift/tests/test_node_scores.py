"""What scores of every origin are taken for."""

import numpy as np
import pytest
from llama_index.core.postprocessor import LongContextReorder
from llama_index.core.schema import NodeWithScore, TextNode

from llama_index.postprocessor.sift.cosines import cosines
from llama_index.postprocessor.sift.node_scores import relevance_of, scores_of
from sift_core import InvalidInputError

COSINES = np.array([0.9, 0.7, 0.6, 0.1])


def scored(scores):
    return [
        NodeWithScore(node=TextNode(id_=str(i), text=f"text {i}"), score=score)
        for i, score in enumerate(scores)
    ]


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
    assert relevance_of(scored(scores), COSINES) is None


def test_rounding_to_float32_says_nothing():
    exact = np.array([0.5, 0.5 + 1e-9, 0.5 - 1e-9, 0.4])
    assert relevance_of(scored([0.5000001, 0.5, 0.5, 0.4]), exact) is None


@pytest.mark.parametrize(
    "scores", [[4.0, 1.0, 3.0, 2.0], [3.0, 3.0, 2.0, 2.5], [-1.0, -9.0, -2.0, -3.0]], ids=str
)
def test_scores_of_a_reranker_are_taken_as_they_are(scores):
    assert relevance_of(scored(scores), COSINES).tolist() == scores


def test_scores_in_falling_order_are_of_a_reranker_even_against_all_cosines():
    scores = [4.0, 3.0, 2.0, 1.0]
    assert relevance_of(scored(scores), COSINES[::-1]).tolist() == scores


def test_distances_that_say_more_than_cosines_are_negated():
    # Of vectors of different lengths: never falling, and not in the order of the cosines.
    assert relevance_of(scored([0.1, 0.2, 0.2, 5.0]), COSINES[[1, 0, 3, 2]]).tolist() == [
        -0.1,
        -0.2,
        -0.2,
        -5.0,
    ]


@pytest.mark.parametrize("scores", [[0.9, 0.7, 0.6, 0.1], [0.2, 0.6, 0.8, 1.8]], ids=["cos", "L2"])
def test_nodes_put_into_another_order_after_a_plain_search_say_nothing(scores):
    nodes = scored(scores)
    reordered = LongContextReorder().postprocess_nodes(nodes)
    similarities = np.array([COSINES[int(node.node.node_id)] for node in reordered])
    assert [node.score for node in reordered] not in (sorted(scores), sorted(scores)[::-1])
    assert relevance_of(reordered, similarities) is None


def test_two_similar_nodes_in_rising_order_are_not_taken_for_distances():
    assert relevance_of(scored([0.3, 0.5]), np.array([0.3, 0.5])) is None


def test_scores_that_must_be_used_are_used_even_if_they_say_nothing_new():
    scores = [0.9, 0.7, 0.6, 0.1]
    assert relevance_of(scored(scores), COSINES, use_scores=True).tolist() == scores


def test_scores_that_must_not_be_used_are_not():
    assert relevance_of(scored([1.0, 4.0, 3.0, 2.0]), COSINES, use_scores=False) is None
    assert scores_of(scored([1.0, 4.0]), use_scores=False) is None


def test_no_nodes_have_no_scores():
    assert scores_of([], use_scores=True) is None


def test_cosines_by_hand():
    nodes = scored([None] * 3)
    found = cosines(np.array([3.0, 4.0]), nodes, np.array([[6.0, 8.0], [1.0, 0.0], [-3.0, -4.0]]))
    assert found == pytest.approx([1.0, 0.6, -1.0])
    assert np.abs(found).max() <= 1.0


@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1e30, 1e300])
def test_cosines_do_not_depend_on_lengths(scale):
    found = cosines(np.array([3.0, 4.0]), scored([None]), np.array([[scale, 0.0]]))
    assert found == pytest.approx([0.6])


@pytest.mark.parametrize(
    ("vector", "message"),
    [
        ([0.0, 0.0], "must not be all zero, that of node '1'"),
        ([np.nan, 1.0], "must be finite, that of node '1'"),
        ([np.inf, 1.0], "must be finite, that of node '1'"),
    ],
    ids=["zero", "nan", "inf"],
)
def test_a_vector_without_a_direction_is_an_error_that_names_its_node(vector, message):
    with pytest.raises(InvalidInputError, match=message):
        cosines(np.array([1.0, 0.0]), scored([None] * 2), np.array([[1.0, 0.0], vector]))


def test_a_query_without_a_direction_is_an_error():
    with pytest.raises(InvalidInputError, match="that of the query"):
        cosines(np.zeros(2), scored([None]), np.ones((1, 2)))
