"""Vectors of queries that a retrieval made and LlamaIndex does not hand on."""

import asyncio
import gc
import weakref
from contextvars import Context

import numpy as np
import pytest
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.schema import QueryBundle

from llama_index.postprocessor.sift import SIFTReranker
from llama_index.postprocessor.sift.query_vectors import (
    aquery_embedding,
    embedded_query,
    query_embedding,
)
from llama_index.postprocessor.sift.retrievals import N_EMBEDDED, latest_retrieval


@pytest.fixture(autouse=True)
def _tracking():
    SIFTReranker()


@pytest.fixture
def index(build_index, nodes, embed_model):
    return build_index("simple", nodes, embed_model)


async def test_an_awaited_retrieval_tells_the_vector_of_its_query(index, embed_model, question):
    await index.as_retriever().aretrieve(question)
    assert embedded_query([question], embed_model).tolist() == embed_model.vector(question)


async def test_neither_twin_embeds_again_what_a_retrieval_embedded(index, embed_model, question):
    await index.as_retriever().aretrieve(question)
    query = QueryBundle(question)
    expected = embed_model.vector(question)
    assert query_embedding(query, lambda: embed_model).tolist() == expected
    assert (await aquery_embedding(query, lambda: embed_model)).tolist() == expected
    assert embed_model.queries == [question]
    assert query.embedding is None


async def test_several_texts_of_a_query_are_put_together_as_the_model_does_it(index, embed_model):
    texts = ["bees dance", "steel melts"]
    bundle = QueryBundle("bees", custom_embedding_strs=texts)
    await index.as_retriever().aretrieve(bundle)
    found = await aquery_embedding(bundle, lambda: embed_model)
    assert embed_model.queries == texts
    assert found.tolist() == embed_model.get_agg_embedding_from_queries(texts)


async def test_another_text_is_embedded(index, embed_model, question):
    await index.as_retriever().aretrieve(question)
    found = await aquery_embedding(QueryBundle("ants"), lambda: embed_model)
    assert found.tolist() == embed_model.vector("ants")
    assert embed_model.queries == [question, "ants"]


async def test_another_model_embeds_anew(index, new_model, question):
    other = new_model(dimension=32)
    await index.as_retriever().aretrieve(question)
    assert len(await aquery_embedding(QueryBundle(question), lambda: other)) == 32
    assert other.queries == [question]


async def test_a_model_with_a_way_of_its_own_to_put_texts_together_is_asked(
    build_index, nodes, new_model, question
):
    class Largest(new_model):
        def get_agg_embedding_from_queries(self, queries, agg_fn=None):
            return np.max([self.get_query_embedding(query) for query in queries], axis=0).tolist()

    model = Largest()
    await build_index("simple", nodes, model).as_retriever().aretrieve(question)
    assert embedded_query([question], model) is None


async def test_the_vector_of_an_earlier_retrieval_is_not_taken_for_a_later_ones(
    index, embed_model, question
):
    await index.as_retriever().aretrieve(question)
    await index.as_retriever().aretrieve("ants")
    assert embedded_query([question], embed_model) is None


async def test_what_is_embedded_outside_a_retrieval_is_not_kept(index, embed_model, question):
    await index.as_retriever().aretrieve(question)
    await embed_model.aget_query_embedding("ants")
    assert embedded_query(["ants"], embed_model) is None


def test_another_context_knows_nothing(index, embed_model, question):
    Context().run(index.as_retriever().retrieve, question)
    assert embedded_query([question], embed_model) is None


async def test_tasks_know_the_vectors_of_their_own_queries(index, embed_model, nodes):
    async def ask(question):
        await index.as_retriever().aretrieve(question)
        others = [node.text for node in nodes if node.text != question]
        assert all(embedded_query([other], embed_model) is None for other in others)
        return embedded_query([question], embed_model)

    questions = [node.text for node in nodes]
    found = await asyncio.gather(*(ask(question) for question in questions))
    for question, vector in zip(questions, found, strict=True):
        assert vector.tolist() == embed_model.vector(question)


async def test_all_parts_of_a_fusion_share_what_they_embed(index, embed_model, llm, question):
    fusion = QueryFusionRetriever(
        [index.as_retriever(), index.as_retriever()], llm=llm, num_queries=1
    )
    await fusion.aretrieve(question)
    assert embedded_query([question], embed_model).tolist() == embed_model.vector(question)


async def test_only_so_many_vectors_are_kept(build_index, nodes, embed_model):
    texts = [f"a hypothetical answer number {i}" for i in range(N_EMBEDDED + 5)]
    bundle = QueryBundle("bees", custom_embedding_strs=texts)
    await build_index("simple", nodes, embed_model).as_retriever().aretrieve(bundle)
    assert len(latest_retrieval().embedded) == N_EMBEDDED
    assert embedded_query(texts, embed_model) is None


async def test_a_model_is_not_kept_alive(build_index, nodes, new_model, question):
    model = new_model()
    await build_index("simple", nodes, model).as_retriever().aretrieve(question)
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None
