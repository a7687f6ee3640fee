"""The way from node ids to rows of a Faiss index, while nodes come and go."""

import gc
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

from llama_index.postprocessor.sift import faiss_vectors as module
from llama_index.postprocessor.sift.stored_vectors import stored_vectors


def assert_are_vectors_of(found, nodes, embed_model):
    assert found.keys() == {node.node_id for node in nodes}
    for node in nodes:
        assert found[node.node_id] == pytest.approx(embed_model.vector(node.text), abs=1e-6)


class CountingDict(dict):
    """Counts how often all of it is read."""

    n_copies = 0

    def copy(self):
        self.n_copies += 1
        return dict(self)


@pytest.fixture
def index(build_index, nodes, embed_model):
    index = build_index("faiss", nodes[:10], embed_model)
    index.index_struct.nodes_dict = CountingDict(index.index_struct.nodes_dict)
    return index


def test_all_ids_are_read_once_for_any_number_of_queries(index, nodes):
    for node in nodes[:10] * 3:
        stored_vectors(index, [node.node_id])
    assert index.index_struct.nodes_dict.n_copies == 1


def test_nodes_that_are_nowhere_do_not_make_every_query_read_all_ids(index, nodes):
    for _ in range(5):
        assert stored_vectors(index, [nodes[15].node_id]) == {}
    assert index.index_struct.nodes_dict.n_copies == 1


def test_nodes_added_after_the_first_query_are_found(index, nodes, embed_model):
    stored_vectors(index, [nodes[0].node_id])
    index.insert_nodes(nodes[10:12])
    found = stored_vectors(index, [node.node_id for node in nodes])
    assert_are_vectors_of(found, nodes[:12], embed_model)
    assert index.index_struct.nodes_dict.n_copies == 2


def test_a_node_added_again_with_another_text_has_its_newest_vector(index, nodes, embed_model):
    stored_vectors(index, [nodes[0].node_id])
    changed = nodes[0].model_copy(update={"text": "bees dance no more", "embedding": None})
    index.insert_nodes([changed])
    found = stored_vectors(index, [nodes[0].node_id])
    assert_are_vectors_of(found, [changed], embed_model)


def test_a_row_that_has_come_to_mean_another_node_is_not_given(index, nodes):
    stored_vectors(index, [nodes[0].node_id])
    index.index_struct.nodes_dict["0"] = nodes[12].node_id
    assert stored_vectors(index, [nodes[0].node_id]) == {}


def test_a_removed_node_is_not_given(index, nodes):
    stored_vectors(index, [nodes[0].node_id])
    del index.index_struct.nodes_dict["9"]
    assert stored_vectors(index, [nodes[9].node_id]) == {}


def test_nothing_is_kept_of_an_index_that_is_gone(build_index, nodes, embed_model):
    gc.collect()
    before = len(module._rows)
    index = build_index("faiss", nodes, embed_model)
    stored_vectors(index, [nodes[0].node_id])
    assert len(module._rows) == before + 1
    gone = weakref.ref(index)
    del index
    gc.collect()
    assert gone() is None
    assert len(module._rows) == before


def test_threads_that_ask_while_nodes_are_added_get_right_vectors(
    build_index, nodes, new_nodes, embed_model
):
    index = build_index("faiss", nodes, embed_model)
    more = [f"a late text number {i}" for i in range(300)]
    late = new_nodes(["x"] * len(nodes) + more)[len(nodes) :]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def ask(_):
        return stored_vectors(index, [node.node_id for node in nodes + late])

    try:
        with ThreadPoolExecutor(4) as pool:
            adding = pool.submit(lambda: [index.insert_nodes([node]) for node in late])
            answers = list(pool.map(ask, range(60)))
            adding.result()
    finally:
        sys.setswitchinterval(interval)
    by_id = {node.node_id: node for node in nodes + late}
    for answer in answers:
        assert_are_vectors_of(answer, [by_id[i] for i in answer], embed_model)
        assert len(answer) >= len(nodes)
    assert_are_vectors_of(ask(0), nodes + late, embed_model)
