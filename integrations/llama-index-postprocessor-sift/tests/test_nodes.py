"""Nodes as candidates of the core, and what was chosen as nodes again."""

import pickle
from typing import ClassVar

import numpy as np
import pytest
from llama_index.core.schema import (
    MetadataMode,
    NodeRelationship,
    NodeWithScore,
    RelatedNodeInfo,
    TextNode,
)

from llama_index.postprocessor.sift.nodes import chosen_nodes, distinct_nodes, node_pool
from sift_core import ChoiceOptions, Query, Selection, StopReason, choose

QUERY = np.array([1.0, 0.0])


def scored(scores):
    return [
        NodeWithScore(
            node=TextNode(id_=str(i), text=f"text {i}", metadata={"page": i}), score=score
        )
        for i, score in enumerate(scores)
    ]


class Decided:
    """A selector whose choice is fixed."""

    def __init__(self, positions, variances):
        self.selection = Selection(
            positions=np.array(positions),
            variances=np.array(variances),
            stop_reason=StopReason.N_SELECT,
        )

    def select(self, query, candidates, n_select, *, relevance=None):
        return self.selection


def chosen(nodes, positions, variances, embeddings=None, **options):
    if embeddings is None:
        embeddings = np.array([[1.0, 0.1], [0.1, 1.0]])[np.arange(len(nodes)) % 2]
    pool = node_pool(QUERY, nodes, embeddings)
    options = ChoiceOptions(selector=Decided(positions, variances), **options)
    return chosen_nodes(choose(pool, Query(text="", embedding=QUERY), options))


def test_row_i_is_node_i():
    nodes, embeddings = scored([1.0, 2.0]), np.array([[2.0, 0.0], [3.0, 4.0]])
    pool = node_pool(QUERY, nodes, embeddings)
    assert pool.document_ids == ("0", "1")
    assert pool.similarities == pytest.approx([1.0, 0.6])
    assert pool.embeddings.tolist() == embeddings.tolist()
    assert pool.items == nodes
    assert pool.scores == [1.0, 2.0]
    assert all(row is node.node.metadata for row, node in zip(pool.metadata, nodes, strict=True))
    assert list(pool.texts) == ["text 0", "text 1"]


def of_page(text, metadata=None, start=None, source=None):
    node = TextNode(text=text, metadata=metadata or {}, start_char_idx=start)
    if source is not None:
        node.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id=source)
    return NodeWithScore(node=node)


def test_the_document_of_a_node_is_named_by_a_key_or_else_by_its_source():
    nodes = [
        of_page("one", {"title": "Bees"}, start=7, source="page"),
        of_page("two", start=7, source="page"),
        of_page("three", {"title": "Bees"}, start=7),
        of_page("four", {"file_name": "bees.md"}),
    ]
    pool = node_pool(QUERY, nodes, np.ones((4, 2)))
    assert [pool.place(row).document for row in range(4)] == ["page", "page", None, None]
    named = [pool.place(row, "title") for row in range(4)]
    assert [place.document for place in named] == ["Bees", "page", "Bees", None]
    assert [place.start for place in named] == [7, 7, None, None]
    assert [place.joinable_text for place in named] == ["page", "page", None, None]


def test_tokens_are_those_of_any_text_with_the_metadata_of_the_node():
    node = TextNode(text="bees dance", metadata={"title": "Bees", "secret": "x"})
    node.excluded_llm_metadata_keys = ["secret"]
    pool = node_pool(QUERY, [NodeWithScore(node=node)], np.ones((1, 2)))
    assert pool.as_read(0, "bees dance") == node.get_content(MetadataMode.LLM)
    assert pool.as_read(0, "all bees dance") == "title: Bees\n\nall bees dance"
    assert node.text == "bees dance"


class Counting(TextNode):
    """Counts how often its text is read."""

    n_read: ClassVar[int] = 0

    def get_content(self, metadata_mode=MetadataMode.NONE):
        type(self).n_read += 1
        return super().get_content(metadata_mode)


@pytest.mark.parametrize(("words", "n_for_words"), [(0.0, 0), (0.7, 40)])
def test_a_choice_reads_each_text_once_for_words_and_otherwise_those_chosen(
    monkeypatch, words, n_for_words
):
    monkeypatch.setattr(Counting, "n_read", 0)
    rows = np.random.default_rng(0).standard_normal((40, 8))
    nodes = [NodeWithScore(node=Counting(text=f"text {i}")) for i in range(40)]
    pool = node_pool(rows[0], nodes, rows)
    options = ChoiceOptions(n_select=3, words=words)
    found = choose(pool, Query(text="", embedding=rows[0]), options)
    chosen_nodes(found)
    assert len(found) == 3
    assert n_for_words <= Counting.n_read <= n_for_words + 3 * len(found)


def test_texts_are_what_an_llm_may_read():
    node = TextNode(text="bees dance", metadata={"title": "Bees", "secret": "x"})
    node.excluded_llm_metadata_keys = ["secret"]
    pool = node_pool(QUERY, [NodeWithScore(node=node)], np.ones((1, 2)), for_llm=True)
    assert list(pool.texts) == ["title: Bees\n\nbees dance"]


def test_nodes_that_came_before_are_left_out_and_pieces_of_one_node_are_not():
    def node(node_id, text, score):
        return NodeWithScore(node=TextNode(id_=node_id, text=text), score=score)

    arrived = [node("a", "one", 3.0), node("b", "one", 2.0), node("a", "one", 1.0)]
    pieces = [node("a", "two", 0.5)]
    assert distinct_nodes(arrived + pieces) == [*arrived[:2], *pieces]


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
