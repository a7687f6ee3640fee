"""Nodes as candidates of the core, and what was chosen as nodes again."""

import pickle
import random

import numpy as np
import pytest
from llama_index.core.schema import NodeRelationship, NodeWithScore, RelatedNodeInfo, TextNode

from llama_index.postprocessor.sift.nodes import (
    chosen_nodes,
    distinct_nodes,
    node_pool,
)
from sift_core import InvalidInputError, Selection, StopReason

COSINES = np.array([0.9, 0.7, 0.6, 0.1])
QUERY = np.array([1.0, 0.0])


def scored(scores):
    return [
        NodeWithScore(
            node=TextNode(id_=str(i), text=f"text {i}", metadata={"page": i}), score=score
        )
        for i, score in enumerate(scores)
    ]


def chosen(nodes, positions, variances, embeddings=None):
    if embeddings is None:
        embeddings = np.array([[1.0, 0.1], [0.1, 1.0]])[np.arange(len(nodes)) % 2]
    selection = Selection(
        positions=np.array(positions),
        variances=np.array(variances),
        stop_reason=StopReason.N_SELECT,
    )
    return chosen_nodes(node_pool(QUERY, nodes, embeddings), selection)


def test_row_i_is_node_i():
    nodes, embeddings = scored([1.0, 2.0]), np.array([[2.0, 0.0], [3.0, 4.0]])
    pool = node_pool(QUERY, nodes, embeddings)
    assert pool.document_ids == ("0", "1")
    assert pool.similarities == pytest.approx([1.0, 0.6])
    assert pool.embeddings.tolist() == embeddings.tolist()
    assert [row["node"] for row in pool.metadata] == nodes


def test_texts_are_what_an_llm_may_read():
    node = TextNode(text="bees dance", metadata={"title": "Bees", "secret": "x"})
    node.excluded_llm_metadata_keys = ["secret"]
    pool = node_pool(QUERY, [NodeWithScore(node=node)], np.ones((1, 2)), with_texts=True)
    assert pool.texts == ("title: Bees\n\nbees dance",)


def test_scores_that_say_more_than_cosines_become_relevance():
    nodes, embeddings = scored([2.0, 1.0]), np.array([[3.0, 4.0], [1.0, 0.0]])
    assert node_pool(QUERY, nodes, embeddings).relevance.tolist() == [2.0, 1.0]
    assert node_pool(QUERY, nodes, embeddings, use_scores=False).relevance is None


def test_no_nodes_are_an_empty_pool():
    assert len(node_pool(np.ones(3), [], np.empty((0, 0)))) == 0


@pytest.mark.parametrize(
    ("vector", "message"),
    [
        ([np.nan, 1.0], r"must be finite, got nan at \[1, 0\]"),
        ([np.inf, 1.0], r"must be finite, got inf at \[1, 0\]"),
        ([1.0, 0.0, 0.0], "must have 2 columns like the query, got 3"),
    ],
    ids=["nan", "inf", "length"],
)
def test_vectors_that_cannot_be_compared_are_an_error(vector, message):
    first = [1.0, *[0.0] * (len(vector) - 1)]
    with pytest.raises(InvalidInputError, match=message):
        node_pool(QUERY, scored([None] * 2), np.array([first, vector]))


def test_nodes_that_came_before_are_left_out_and_pieces_of_one_node_are_not():
    def node(node_id, text, score):
        return NodeWithScore(node=TextNode(id_=node_id, text=text), score=score)

    arrived = [node("a", "one", 3.0), node("b", "one", 2.0), node("a", "one", 1.0)]
    pieces = [node("a", "two", 0.5)]
    assert distinct_nodes(arrived + pieces) == [*arrived[:2], *pieces]


def test_scores_and_metadata_by_hand():
    embeddings = np.array([[3.0, 4.0], [0.0, 1.0], [2.0, 0.0]])  # cos of rows 2 and 0: 3/5
    first, second = chosen(scored([0.6, 0.1, 0.9]), [2, 0], [1.0, 0.75, 0.5], embeddings)
    assert (first.node.node_id, second.node.node_id) == ("2", "0")
    assert (first.score, second.score) == (1.0, 0.75)
    assert first.node.metadata == {
        "page": 2,
        "sift": {
            "similarity": 1.0,
            "score": 0.9,
            "relevance": 1.0,
            "redundancy": None,
            "gain": 0.25,
            "variance": 0.75,
        },
    }
    assert second.node.metadata["sift"]["similarity"] == pytest.approx(0.6)
    assert second.node.metadata["sift"]["redundancy"] == pytest.approx(0.6)


def test_the_order_survives_any_descending_sort_even_among_ties():
    kept = chosen(scored([None] * 5), [4, 1, 3, 0, 2], [1.0, 0.5, 0.5, 0.5, 0.0, 0.0])
    shuffled = random.Random(0).sample(kept, k=5)
    for precision in (float, np.float32):  # BEIR's evaluation compares in single precision
        resorted = sorted(shuffled, key=lambda node: precision(node.score), reverse=True)
        assert [node.node.node_id for node in resorted] == ["4", "1", "3", "0", "2"]


def test_nodes_are_reranked_twice_without_repeating_the_hidden_key():
    once = chosen(scored([0.2, 0.1]), [1], [1.0, 0.5])
    (twice,) = chosen(once, [0], [1.0, 0.5])
    assert twice.node.excluded_llm_metadata_keys == ["sift"]
    assert twice.metadata["sift"]["score"] == 1.0


def test_a_node_keeps_its_hash_and_shows_its_explanation():
    nodes = scored([None] * 3)
    (copy,) = chosen(nodes, [2], [1.0, 0.75])
    assert copy.node.hash == nodes[2].node.hash
    assert "gain" in repr(copy.node.metadata)
    assert pickle.loads(pickle.dumps(copy)).node.metadata == copy.node.metadata


def test_relationships_added_to_a_copy_are_not_added_to_the_original():
    nodes = scored([None])
    (copy,) = chosen(nodes, [0], [1.0, 0.5])
    copy.node.relationships[NodeRelationship.NEXT] = RelatedNodeInfo(node_id="1")
    assert nodes[0].node.relationships == {}
