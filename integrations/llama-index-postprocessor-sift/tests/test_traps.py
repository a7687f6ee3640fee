"""Traps of LlamaIndex and of two stores; which tests cover them.

| trap | test |
|---|---|
| no store returns embeddings on nodes | test_vectors, here |
| `with_vectors` in `vector_store_kwargs` is ignored | here |
| the query's embedding is None on the async path | test_vectors, test_reranker |
| `RetrieverEvaluator` calls the sync method in a running loop | test_evaluators |
| Qdrant's `get_nodes` loses order | here |
| FaissMap ids collide after delete and add | test_vectors |
| vectors that nobody has: one batch, logged | test_reranker |
| events, callbacks, empty input, no query | test_reranker |
| `extra="forbid"`, to_dict, pickle, deepcopy with live objects | test_reranker |
| keys in metadata leak into the prompt | here, test_reranker |
| embeddings returned bloat JSON | test_reranker, test_retriever |
| input nodes changed, the retrieval score lost | test_reranker |
| `mode="mmr"` is ignored by Qdrant and Faiss | test_retriever |
| default `similarity_top_k` is 2 | test_reranker |
| Qdrant: unnamed vectors are lists, named ones dictionaries | test_vectors, test_retriever |
| Qdrant: cosine collections return normalised vectors, others raw ones | here |
| Qdrant: fused scores are rank scores | test_retriever |
| Faiss: IndexIDMap and IVF cannot reconstruct | test_vectors |
| Faiss: L2 distances come as similarities | here, test_nodes |
| Faiss: missing hits are -1 | here |
| a cosine overrides an earlier reranker's score | test_reranker |
| missing embeddings filled with the query's own | test_reranker |
| a list cut to k is reranked | test_reranker |
"""

import asyncio
from itertools import pairwise

import faiss
import pytest
from llama_index.core.bridge.pydantic import Field
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.span_handlers import SimpleSpanHandler
from llama_index.core.llms import MockLLM
from llama_index.core.postprocessor import PrevNextNodePostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import get_response_synthesizer
from llama_index.core.schema import NodeRelationship, NodeWithScore, RelatedNodeInfo
from llama_index.vector_stores.faiss import FaissVectorStore
from llama_index.vector_stores.qdrant import QdrantVectorStore
from qdrant_client import QdrantClient, models

from llama_index.postprocessor.sift import SIFTReranker, SIFTRetriever
from sift_core import ContextSelector


def ids(scored_nodes):
    return [node.node.node_id for node in scored_nodes]


@pytest.fixture(autouse=True)
def _tracking():
    SIFTReranker()


def test_no_store_returns_vectors_even_if_asked_to(
    store_kind, build_index, nodes, embed_model, question
):
    """If this fails, LlamaIndex has changed: vectors need no second way any more."""
    asked = {"with_vectors": True}
    if store_kind == "chroma":
        asked = {"include": ["documents", "metadatas", "distances", "embeddings"]}
    retriever = build_index(store_kind, nodes, embed_model).as_retriever(vector_store_kwargs=asked)
    assert all(node.node.embedding is None for node in retriever.retrieve(question))


def test_vectors_belong_to_their_nodes_although_qdrant_returns_points_by_id(
    build_index, nodes, embed_model, question
):
    index = build_index("qdrant", nodes, embed_model)
    fetched = index.as_retriever(similarity_top_k=200).retrieve(question)
    assert ids(fetched) != sorted(ids(fetched))  # the order of `get_nodes`
    kept = SIFTReranker(top_n=99, keep_embeddings=True).postprocess_nodes(
        fetched, query_str=question
    )
    for node in kept:
        assert node.node.embedding == pytest.approx(embed_model.vector(node.text), abs=1e-6)


class Recording(MockLLM):
    """Keeps the prompts that it is given."""

    prompts: list = Field(default_factory=list)

    def complete(self, prompt, formatted=False, **kwargs):
        self.prompts.append(prompt)
        return super().complete(prompt, formatted, **kwargs)


@pytest.mark.parametrize("part", ["reranker", "retriever"])
def test_the_prompt_is_that_of_the_same_nodes_without_us(
    part, build_index, nodes, embed_model, question
):
    index = build_index("qdrant", nodes, embed_model)
    if part == "reranker":
        retriever = index.as_retriever(similarity_top_k=200)
        postprocessors = [SIFTReranker(top_n=4)]
    else:
        retriever, postprocessors = SIFTRetriever.from_index(index, top_n=4), []
    llm = Recording()
    engine = RetrieverQueryEngine.from_args(retriever, llm=llm, node_postprocessors=postprocessors)
    kept = engine.query(question).source_nodes
    by_id = {node.node_id: node for node in nodes}
    plain = [NodeWithScore(node=by_id[i], score=1.0) for i in ids(kept)]
    get_response_synthesizer(llm=llm).synthesize(question, plain)
    ours, theirs = llm.prompts
    assert ours == theirs


@pytest.mark.parametrize("metric", ["Cosine", "Dot", "Euclid", "Manhattan"])
def test_a_metric_of_qdrant_changes_nothing_for_vectors_of_one_length(
    metric, index_over, nodes, embed_model, llm, question
):
    client = QdrantClient(":memory:")
    client.create_collection(
        "docs", vectors_config=models.VectorParams(size=embed_model.dimension, distance=metric)
    )
    store = QdrantVectorStore("docs", client=client, index_doc_id=False)
    index = index_over(store, nodes, embed_model)

    def kept(**settings):
        reranker = SIFTReranker(top_n=5, **settings)
        engine = index.as_query_engine(
            llm=llm, similarity_top_k=200, node_postprocessors=[reranker]
        )
        return ids(engine.query(question).source_nodes)

    if metric != "Manhattan":  # which orders unit vectors in its own way
        assert kept() == kept(use_scores=False)
    assert len(kept()) == 5


@pytest.mark.parametrize("flat", [faiss.IndexFlatL2, faiss.IndexFlatIP])
def test_distances_and_similarities_of_faiss_choose_the_same(
    flat, index_over, nodes, embed_model, question
):
    index = index_over(FaissVectorStore(flat(embed_model.dimension)), nodes, embed_model)
    fetched = index.as_retriever(similarity_top_k=200).retrieve(question)
    scores = [node.score for node in fetched]
    assert scores == sorted(
        scores, reverse=flat is faiss.IndexFlatIP
    )  # best first, whatever the score is
    by_default = SIFTReranker(top_n=5).postprocess_nodes(fetched, query_str=question)
    by_cosines = SIFTReranker(top_n=5, use_scores=False).postprocess_nodes(
        fetched, query_str=question
    )
    assert ids(by_default) == ids(by_cosines)


def test_hits_that_faiss_lacks_are_no_nodes(build_index, nodes, embed_model, question):
    index = build_index("faiss", nodes[:3], embed_model)
    found = SIFTRetriever.from_index(index, top_n=10).retrieve(question)
    assert set(ids(found)) == {node.node_id for node in nodes[:3]}


def test_neighbours_of_a_node_come_without_scores_and_their_vectors_are_looked_up(
    build_index, new_nodes, embed_model, llm, question
):
    nodes = new_nodes([f"{question} {i}" for i in range(6)])
    for one, other in pairwise(nodes):
        related = RelatedNodeInfo(node_id=other.node_id)
        one.relationships[NodeRelationship.NEXT] = related
    index = build_index("simple", nodes, embed_model)
    fetched = index.as_retriever(similarity_top_k=2).retrieve(question)
    widened = PrevNextNodePostprocessor(
        docstore=index.docstore, num_nodes=2, mode="next"
    ).postprocess_nodes(fetched, query_str=question)
    assert None in [node.score for node in widened]
    kept = SIFTReranker(top_n=2).postprocess_nodes(widened, query_str=question)
    assert len(kept) == 2
    assert embed_model.texts == []


@pytest.mark.parametrize("use_async", [False, True], ids=["called", "awaited"])
async def test_both_twins_are_spans_of_their_own(
    use_async, build_index, nodes, embed_model, question
):
    """LlamaIndex makes spans of abstract methods alone, which the awaited ones are not."""
    root, spans = get_dispatcher(), SimpleSpanHandler()
    retriever = SIFTRetriever.from_index(build_index("faiss", nodes, embed_model), top_n=5)
    reranker = SIFTReranker(top_n=3)
    before = list(root.span_handlers)
    root.add_span_handler(spans)
    try:
        if use_async:
            found = await retriever.aretrieve(question)
            await reranker.apostprocess_nodes(found, query_str=question)
        else:
            reranker.postprocess_nodes(retriever.retrieve(question), query_str=question)
    finally:
        root.span_handlers = before
    names = {span.id_.split("-")[0] for span in spans.completed_spans}
    a = "a" if use_async else ""
    assert {f"SIFTRetriever._{a}retrieve", f"SIFTReranker._{a}postprocess_nodes"} <= names


async def test_the_selection_does_not_run_in_the_event_loop(
    build_index, nodes, embed_model, question, monkeypatch
):
    select = ContextSelector.select

    def noted(*args, **kwargs):
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        in_thread.append(True)
        return select(*args, **kwargs)

    in_thread = []
    monkeypatch.setattr(ContextSelector, "select", noted)
    index = build_index("faiss", nodes, embed_model)
    found = await index.as_retriever(similarity_top_k=200).aretrieve(question)
    await SIFTReranker(top_n=3).apostprocess_nodes(found, query_str=question)
    await SIFTRetriever.from_index(index, top_n=3).aretrieve(question)
    assert in_thread == [True, True]
