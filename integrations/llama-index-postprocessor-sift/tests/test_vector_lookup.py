"""Vectors of query and nodes: from one model, of one length, and an error where they are not."""

import numpy as np
import pytest
from llama_index.core import Settings
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from llama_index.postprocessor.sift import SIFTReranker, SIFTRetriever
from llama_index.postprocessor.sift.retriever_tracking import track_retrievals
from sift_core import InvalidInputError


@pytest.fixture(autouse=True)
def tracked():
    """Watch retrievals from the beginning, as where an engine is built before it is asked."""
    track_retrievals()


@pytest.fixture
def other_model(new_model):
    """Puts the same words into other buckets."""

    class Reversed(new_model):
        def vector(self, text):
            return super().vector(text)[::-1]

    return Reversed(model_name="others")


def relevances(scored_nodes):
    return {n.node.node_id: n.node.metadata["sift"]["relevance"] for n in scored_nodes}


def cosine(one, other):
    return pytest.approx(float(np.dot(one, other)), abs=1e-6)


async def twins(reranker, nodes, query):
    return [
        reranker.postprocess_nodes(nodes, query),
        await reranker.apostprocess_nodes(nodes, query),
    ]


async def test_a_query_is_compared_with_the_vectors_of_another_index_by_that_indexs_model(
    build_index, nodes, embed_model, other_model, question
):
    searched = build_index("simple", nodes, embed_model)
    with_vectors = build_index("simple", nodes, other_model)
    query = QueryBundle(question)
    found = searched.as_retriever(similarity_top_k=20).retrieve(query)
    assert query.embedding == embed_model.vector(question)  # LlamaIndex leaves it there
    for kept in await twins(SIFTReranker(top_n=3, index=with_vectors), found, query):
        for node in kept:
            assert relevances([node])[node.node.node_id] == cosine(
                other_model.vector(question), other_model.vector(node.node.text)
            )


async def test_a_model_for_what_has_no_vector_does_not_embed_a_query_for_stored_vectors(
    build_index, nodes, embed_model, other_model, question
):
    index = build_index("simple", nodes, embed_model)
    found = index.as_retriever(similarity_top_k=20).retrieve(question)
    reranker = SIFTReranker(top_n=3, embed_model=other_model)
    for kept in await twins(reranker, found, QueryBundle(question)):
        for node in kept:
            assert relevances([node])[node.node.node_id] == cosine(
                embed_model.vector(question), embed_model.vector(node.node.text)
            )


def test_a_fused_retriever_does_not_take_the_query_of_another_model(
    build_index, nodes, embed_model, other_model, question, llm
):
    first = build_index("simple", nodes[:10], embed_model).as_retriever(similarity_top_k=5)
    second = SIFTRetriever(build_index("simple", nodes[10:], other_model), top_n=3)
    fusion = QueryFusionRetriever(
        [first, second], llm=llm, num_queries=1, use_async=False, similarity_top_k=20
    )
    of_second = [n for n in fusion.retrieve(question) if "sift" in n.node.metadata]
    assert relevances(of_second) == relevances(second.retrieve(question))


def test_a_vector_that_no_retrieval_made_is_used_as_it_is(build_index, nodes, embed_model):
    index = build_index("simple", nodes, embed_model)
    found = index.as_retriever(similarity_top_k=20).retrieve("bees")
    query = QueryBundle("bees", embedding=embed_model.vector("steel"))
    embed_model.forget()
    SIFTReranker(top_n=3).postprocess_nodes(found, query)
    assert embed_model.queries == []


async def test_no_model_where_one_is_needed_is_an_error_that_says_what_to_do(monkeypatch):
    monkeypatch.setattr(Settings, "_embed_model", None)
    given = [NodeWithScore(node=TextNode(text=text)) for text in ("bees", "ants")]
    reranker = SIFTReranker(top_n=1)
    with pytest.raises(InvalidInputError, match="pass `embed_model`"):
        reranker.postprocess_nodes(given, query_str="bees")
    with pytest.raises(InvalidInputError, match="pass `embed_model`"):
        await reranker.apostprocess_nodes(given, query_str="bees")


async def test_a_query_of_another_length_than_faisss_vectors_is_an_error_that_says_so(
    build_index, nodes, embed_model
):
    retriever = SIFTRetriever(build_index("faiss", nodes, embed_model))
    query = QueryBundle("bees", embedding=[1.0, 0.0])
    with pytest.raises(InvalidInputError, match=r"must have 96 numbers .* got 2"):
        retriever.retrieve(query)
    with pytest.raises(InvalidInputError, match=r"must have 96 numbers .* got 2"):
        await retriever.aretrieve(query)


@pytest.mark.parametrize(("value", "message"), [(np.nan, "finite"), (0.0, "all zero")])
async def test_a_query_that_points_nowhere_is_an_error_with_every_store(
    value, message, store_kind, build_index, nodes, embed_model
):
    index = build_index(store_kind, nodes, embed_model)
    query = QueryBundle("bees", embedding=[value] * embed_model.dimension)
    with pytest.raises(InvalidInputError, match=message):
        SIFTRetriever(index).retrieve(query)
    with pytest.raises(InvalidInputError, match=message):
        await SIFTRetriever(index).aretrieve(query)


async def test_a_node_that_arrives_twice_is_kept_once(build_index, nodes, embed_model, question):
    plain = build_index("faiss", nodes, embed_model).as_retriever(similarity_top_k=6)
    given = [*plain.retrieve(question), *plain.retrieve(question)]
    for kept in await twins(SIFTReranker(top_n=10), given, QueryBundle(question)):
        assert len(kept) == 6
        assert len({node.node.node_id for node in kept}) == 6
