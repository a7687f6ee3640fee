"""Which indexes a reranker finds, in every way that LlamaIndex runs a retriever."""

import asyncio
import gc
import subprocess
import sys
from contextvars import Context

import pytest
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.retrievers import QueryFusionRetriever, VectorIndexRetriever
from llama_index.core.schema import IndexNode

from llama_index.postprocessor.sift import SIFTReranker
from llama_index.postprocessor.sift.tracking import sources_of


def ids(scored_nodes):
    return [node.node.node_id for node in scored_nodes]


def indexes_of(scored_nodes):
    return [source.index for source in sources_of(ids(scored_nodes))]


class Failing(BaseRetriever):
    def _retrieve(self, query_bundle):
        raise KeyError("gone")


class Fixed(BaseRetriever):
    """Finds the same nodes without vectors, as BM25 does."""

    def __init__(self, found):
        super().__init__()
        self.found = found

    def _retrieve(self, query_bundle):
        return self.found


@pytest.fixture(autouse=True)
def _tracking():
    SIFTReranker()


@pytest.fixture
def index(build_index, nodes, embed_model):
    return build_index("simple", nodes, embed_model)


@pytest.fixture
def other_index(build_index, new_nodes, embed_model):
    other = new_nodes(["x"] * 50 + ["wasps find the way home too"] * 5)[50:]
    return build_index("simple", other, embed_model)


@pytest.mark.slow
def test_importing_registers_nothing_and_the_first_reranker_one_handler():
    probe = """
from llama_index.core.instrumentation import get_dispatcher
from llama_index.postprocessor.sift import SIFTReranker
before = len(get_dispatcher().span_handlers)
SIFTReranker(), SIFTReranker()
print(before, len(get_dispatcher().span_handlers) - before)
"""
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    first, added = map(int, done.stdout.split())
    assert added == 1
    assert first <= 1  # LlamaIndex's own


def test_an_index_is_not_kept_alive(build_index, nodes, embed_model, question):
    found = build_index("simple", nodes, embed_model).as_retriever().retrieve(question)
    gc.collect()
    assert indexes_of(found) == []


def test_nodes_from_elsewhere_do_not_get_the_index_of_an_earlier_query(
    index, other_index, question
):
    elsewhere = Context().run(other_index.as_retriever().retrieve, question)
    index.as_retriever().retrieve(question)
    assert indexes_of(elsewhere) == []


def test_nodes_of_several_retrievals_put_together_are_all_found(index, other_index, question):
    first = index.as_retriever().retrieve(question)
    second = other_index.as_retriever().retrieve(question)
    assert indexes_of(first + second) == [other_index, index]
    assert indexes_of(first) == [index]


def test_a_retriever_without_vectors_does_not_hide_an_index(index, question):
    found = index.as_retriever().retrieve(question)
    assert indexes_of(Fixed(found).retrieve(question)) == [index]


def test_of_two_indexes_with_equal_ids_the_one_searched_last_counts(
    build_index, nodes, embed_model, question
):
    first, second = (build_index("simple", nodes, embed_model) for _ in range(2))
    first.as_retriever().retrieve(question)
    assert indexes_of(second.as_retriever().retrieve(question)) == [second]


def test_a_failed_retrieval_leaves_nothing_behind(index, question):
    found = index.as_retriever().retrieve(question)
    with pytest.raises(KeyError):
        Failing().retrieve(question)
    assert indexes_of(found) == [index]
    assert indexes_of(index.as_retriever().retrieve(question)) == [index]


@pytest.mark.parametrize("use_async", [True, False], ids=["async", "sync"])
def test_all_parts_of_a_fusion_are_found(
    use_async, index, other_index, embed_model, llm, question, caplog
):
    fusion = QueryFusionRetriever(
        [index.as_retriever(similarity_top_k=99), other_index.as_retriever(similarity_top_k=99)],
        llm=llm,
        num_queries=1,
        similarity_top_k=99,
        use_async=use_async,
    )
    found = fusion.retrieve(question)
    assert set(indexes_of(found)) == {index, other_index}
    SIFTReranker().postprocess_nodes(found, query_str=question)
    assert embed_model.texts == []


def test_the_index_behind_an_index_node_is_found(build_index, other_index, embed_model, question):
    outer = build_index("simple", [IndexNode(text="a door", index_id="wasps")], embed_model)
    objects = {"wasps": other_index.as_retriever()}
    found = VectorIndexRetriever(outer, object_map=objects).retrieve(question)
    assert indexes_of(found) == [outer, other_index]


async def test_concurrent_tasks_with_different_indexes_do_not_mix(
    build_index, nodes, new_model, llm, question
):
    engines = [
        build_index("simple", nodes, new_model(dimension=dimension)).as_query_engine(
            llm=llm,
            similarity_top_k=99,
            node_postprocessors=[SIFTReranker(top_n=4, keep_embeddings=True)],
        )
        for dimension in (32, 64)
    ]
    answers = await asyncio.gather(*(engine.aquery(question) for engine in engines * 5))
    for answer, dimension in zip(answers, (32, 64) * 5, strict=True):
        assert all(len(node.node.embedding) == dimension for node in answer.source_nodes)
