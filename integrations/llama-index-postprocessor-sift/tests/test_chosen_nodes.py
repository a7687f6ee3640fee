"""From a selection to copies of nodes."""

import random

import numpy as np
from llama_index.core.schema import NodeWithScore, TextNode

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


def test_scores_and_metadata_by_hand():
    first, second = chosen_nodes(scored(3), selection([2, 0], [1.0, 0.75, 0.5]))
    assert (first.node.node_id, second.node.node_id) == ("2", "0")
    assert (first.score, second.score) == (1.0, 0.75)
    assert first.node.metadata == {
        "page": 2,
        "sift": {
            "retrieval_score": 0.2,
            "gain": 0.25,
            "variance_before": 1.0,
            "variance_after": 0.75,
        },
    }
    assert first.node.embedding == [1.0]


def test_a_missing_score_stays_missing():
    (chosen,) = chosen_nodes([NodeWithScore(node=TextNode(text="a"))], selection([0], [1.0, 0.5]))
    assert chosen.metadata["sift"]["retrieval_score"] is None


def test_the_order_survives_any_descending_sort_even_among_ties():
    chosen = chosen_nodes(scored(5), selection([4, 1, 3, 0, 2], [1.0, 0.5, 0.5, 0.5, 0.0, 0.0]))
    shuffled = random.Random(0).sample(chosen, k=5)
    resorted = sorted(shuffled, key=lambda node: node.score, reverse=True)
    assert [node.node.node_id for node in resorted] == ["4", "1", "3", "0", "2"]


def test_ties_at_zero_fall_below_it():
    chosen = chosen_nodes(scored(3), selection([0, 1, 2], [1.0, 0.0, 0.0, 0.0]))
    assert chosen[1].score > chosen[2].score


def test_nodes_are_reranked_twice_without_repeating_the_hidden_key():
    once = chosen_nodes(scored(2), selection([1], [1.0, 0.5]))
    (twice,) = chosen_nodes(once, selection([0], [1.0, 0.5]))
    assert twice.node.excluded_llm_metadata_keys == ["sift"]
    assert twice.metadata["sift"]["retrieval_score"] == 1.0
