"""From a selection to copies of nodes."""

import pickle
import random

import numpy as np
import pytest
from llama_index.core.schema import NodeRelationship, NodeWithScore, RelatedNodeInfo, TextNode

from llama_index.postprocessor.sift.chosen_nodes import chosen_nodes
from sift_core import Selection, StopReason


def scored(n):
    return [
        NodeWithScore(
            node=TextNode(id_=str(i), text=f"text {i}", metadata={"page": i}, embedding=[1.0]),
            score=i / 10,
        )
        for i in range(n)
    ]


def selection(positions, variances):
    return Selection(
        positions=np.array(positions),
        variances=np.array(variances),
        stop_reason=StopReason.N_SELECT,
    )


def chosen(nodes, selection, **options):
    """Choose among nodes whose vectors are (1, 0), (0, 1), (1, 0)…"""
    options = {
        "similarities": np.full(len(nodes), 0.5),
        "embeddings": np.eye(2)[np.arange(len(nodes)) % 2],
        **options,
    }
    return chosen_nodes(nodes, selection, **options)


def test_scores_and_metadata_by_hand():
    first, second = chosen(
        scored(3),
        selection([2, 0], [1.0, 0.75, 0.5]),
        similarities=np.array([0.9, 0.1, 0.7]),
        embeddings=np.array([[3.0, 4.0], [0.0, 1.0], [2.0, 0.0]]),  # cos of 2 and 0: 3/5
    )
    assert (first.node.node_id, second.node.node_id) == ("2", "0")
    assert (first.score, second.score) == (1.0, 0.75)
    assert first.node.metadata == {
        "page": 2,
        "sift": {
            "retrieval_score": 0.2,
            "relevance": 0.7,
            "redundancy": None,
            "gain": 0.25,
            "variance_before": 1.0,
            "variance_after": 0.75,
        },
    }
    assert first.node.embedding == [1.0]
    assert second.node.metadata["sift"]["relevance"] == 0.9
    assert second.node.metadata["sift"]["redundancy"] == pytest.approx(0.6)


def test_redundancy_is_that_with_the_most_alike_of_all_earlier_choices():
    tilted = [0.6, 0.8]
    *_, third = chosen(
        scored(3),
        selection([0, 1, 2], [1.0, 0.7, 0.5, 0.4]),
        embeddings=np.array([[0.0, 1.0], [1.0, 0.0], tilted]),
    )
    assert third.node.metadata["sift"]["redundancy"] == pytest.approx(0.8)


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_redundancy_does_not_depend_on_lengths(scale):
    *_, last = chosen(
        scored(2),
        selection([0, 1], [1.0, 0.7, 0.5]),
        embeddings=np.array([[3.0, 4.0], [scale, 0.0]]),
    )
    assert last.node.metadata["sift"]["redundancy"] == pytest.approx(0.6)


def test_a_missing_score_stays_missing():
    (kept,) = chosen([NodeWithScore(node=TextNode(text="a"))], selection([0], [1.0, 0.5]))
    assert kept.metadata["sift"]["retrieval_score"] is None


def test_the_order_survives_any_descending_sort_even_among_ties():
    kept = chosen(scored(5), selection([4, 1, 3, 0, 2], [1.0, 0.5, 0.5, 0.5, 0.0, 0.0]))
    shuffled = random.Random(0).sample(kept, k=5)
    resorted = sorted(shuffled, key=lambda node: node.score, reverse=True)
    assert [node.node.node_id for node in resorted] == ["4", "1", "3", "0", "2"]


def test_ties_at_zero_fall_below_it():
    kept = chosen(scored(3), selection([0, 1, 2], [1.0, 0.0, 0.0, 0.0]))
    assert kept[1].score > kept[2].score


def test_nodes_are_reranked_twice_without_repeating_the_hidden_key():
    once = chosen(scored(2), selection([1], [1.0, 0.5]))
    (twice,) = chosen(once, selection([0], [1.0, 0.5]))
    assert twice.node.excluded_llm_metadata_keys == ["sift"]
    assert twice.metadata["sift"]["retrieval_score"] == 1.0


def test_a_node_keeps_its_hash_and_shows_its_explanation():
    nodes = scored(3)
    copies = chosen(nodes, selection([2, 0], [1.0, 0.75, 0.5]))
    for copy, original in zip(copies, (nodes[2], nodes[0]), strict=True):
        assert copy.node.hash == original.node.hash
        assert "gain" in repr(copy.node.metadata)
        restored = pickle.loads(pickle.dumps(copy))
        assert restored.node.metadata == copy.node.metadata


def test_relationships_added_to_a_copy_are_not_added_to_the_original():
    nodes = scored(1)
    (copy,) = chosen(nodes, selection([0], [1.0, 0.5]))
    copy.node.relationships[NodeRelationship.NEXT] = RelatedNodeInfo(node_id="1")
    assert nodes[0].node.relationships == {}
