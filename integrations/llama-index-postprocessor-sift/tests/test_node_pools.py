"""Nodes as candidates of the core."""

import numpy as np
import pytest
from llama_index.core.schema import NodeWithScore, TextNode

from llama_index.postprocessor.sift.node_pools import distinct_nodes, node_pool
from sift_core import InvalidInputError


@pytest.fixture
def scored_nodes():
    hidden = TextNode(
        id_="a",
        text="bees dance",
        metadata={"title": "Bees", "secret": "x"},
        excluded_llm_metadata_keys=["secret"],
    )
    return [
        NodeWithScore(node=hidden, score=1.0),
        NodeWithScore(node=TextNode(id_="b", text="ants"), score=2.0),
    ]


def test_row_i_is_node_i(scored_nodes):
    embeddings = np.array([[2.0, 0.0], [3.0, 4.0]])
    pool = node_pool(np.array([1.0, 0.0]), scored_nodes, embeddings)
    assert pool.document_ids == ("a", "b")
    assert pool.similarities == pytest.approx([1.0, 0.6])
    assert pool.embeddings.tolist() == embeddings.tolist()
    assert pool.metadata[0]["node"] is scored_nodes[0]
    assert pool.metadata[1]["node"] is scored_nodes[1]


def test_texts_are_what_an_llm_may_read(scored_nodes):
    pool = node_pool(np.array([1.0, 0.0]), scored_nodes, np.eye(2))
    assert pool.texts == ("title: Bees\n\nbees dance", "ants")


def test_scores_that_say_more_than_cosines_become_relevance(scored_nodes):
    query, embeddings = np.array([1.0, 0.0]), np.array([[1.0, 0.0], [3.0, 4.0]])
    assert node_pool(query, scored_nodes[::-1], embeddings).relevance is None
    assert node_pool(query, scored_nodes[::-1], embeddings[::-1]).relevance.tolist() == [2.0, 1.0]
    assert node_pool(query, scored_nodes, embeddings).relevance is None  # as distances do
    assert node_pool(query, scored_nodes, embeddings, use_scores=False).relevance is None


def test_no_nodes_are_an_empty_pool():
    assert len(node_pool(np.ones(3), [], np.empty((0, 0)))) == 0


def test_a_zero_vector_is_an_error(scored_nodes):
    with pytest.raises(InvalidInputError, match="must not be all zero, that of node 'b'"):
        node_pool(np.ones(2), scored_nodes, np.array([[1.0, 0.0], [0.0, 0.0]]))


def test_nodes_that_came_before_are_left_out_and_pieces_of_one_node_are_not():
    def scored(node_id, text, score):
        return NodeWithScore(node=TextNode(id_=node_id, text=text), score=score)

    arrived = [scored("a", "one", 3.0), scored("b", "one", 2.0), scored("a", "one", 1.0)]
    pieces = [scored("a", "two", 0.5)]
    assert distinct_nodes(arrived + pieces) == [*arrived[:2], *pieces]
