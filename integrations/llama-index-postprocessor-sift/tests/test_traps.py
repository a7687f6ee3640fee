"""Traps of LlamaIndex and of two stores; which tests cover them.

| trap | test |
|---|---|
| no store returns embeddings on nodes | test_vectors, here |
| `with_vectors` in `vector_store_kwargs` is ignored | here |
| the query's embedding is None on the async path | test_vectors, test_reranker |
| `RetrieverEvaluator` calls the sync method in a running loop | test_evaluators |
| Qdrant's `get_nodes` loses order | here |
| FaissMap ids collide after delete and add | test_vectors |
| vectors that nobody has: one batch, logged | test_reranker, here |
| events, callbacks, empty input, no query | test_reranker, here |
| `extra="forbid"`, to_dict, pickle, deepcopy with live objects | test_reranker |
| keys in metadata leak into the prompt | here, test_reranker |
| embeddings returned bloat JSON | here, test_reranker |
| input nodes changed, the retrieval score lost | test_reranker |
| `mode="mmr"` is ignored by Qdrant and Faiss | test_retriever |
| default `similarity_top_k` is 2 | here, test_reranker |
| Qdrant: unnamed vectors are lists, named ones dictionaries | test_vectors, test_retriever |
| Qdrant: cosine collections return normalised vectors, others raw ones | here |
| Qdrant: fused scores are rank scores | test_engines |
| Faiss: IndexIDMap and IVF cannot reconstruct | test_vectors |
| Faiss: L2 distances come as similarities | here |
| Faiss: missing hits are -1 | here |
| a cosine overrides an earlier reranker's score | test_engines |
| missing embeddings filled with the query's own | test_reranker |
| a list cut to k is reranked | test_reranker |
"""

import asyncio
import json
from contextvars import ContextVar
from itertools import pairwise

import faiss
import numpy as np
import pytest
from llama_index.core import StorageContext, VectorStoreIndex
from llama_index.core.bridge.pydantic import Field
from llama_index.core.callbacks import CallbackManager, CBEventType
from llama_index.core.callbacks.base_handler import BaseCallbackHandler
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.span_handlers import SimpleSpanHandler
from llama_index.core.llms import MockLLM
from llama_index.core.postprocessor import PrevNextNodePostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import get_response_synthesizer
from llama_index.core.schema import NodeRelationship, NodeWithScore, RelatedNodeInfo, TextNode
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


def over(store, nodes, embed_model):
    storage = StorageContext.from_defaults(vector_store=store)
    index = VectorStoreIndex(nodes, storage_context=storage, embed_model=embed_model)
    embed_model.forget()
    return index


def test_no_store_returns_vectors_even_if_asked_to(
    store_kind, build_index, nodes, embed_model, question
):
    """If this fails, LlamaIndex has changed: vectors need no second way any more."""
    retriever = build_index(store_kind, nodes, embed_model).as_retriever(
        vector_store_kwargs={"with_vectors": True}
    )
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


def test_the_default_number_of_nodes_is_too_small_and_it_is_said(
    build_index, nodes, embed_model, llm, question, caplog
):
    index = build_index("qdrant", nodes, embed_model)
    engine = index.as_query_engine(llm=llm, node_postprocessors=[SIFTReranker()])
    assert len(engine.query(question).source_nodes) == 2
    (record,) = caplog.records
    assert "2 nodes arrived for top_n=10" in record.getMessage()


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


@pytest.mark.parametrize("part", ["reranker", "retriever"])
def test_what_comes_back_is_hardly_larger_than_what_the_store_returns(
    part, build_index, nodes, new_model, question
):
    index = build_index("qdrant", nodes, new_model(dimension=384))
    fetched = index.as_retriever(similarity_top_k=200).retrieve(question)
    if part == "reranker":
        kept = SIFTReranker(top_n=10).postprocess_nodes(fetched, query_str=question)
    else:
        kept = SIFTRetriever.from_index(index, top_n=10).retrieve(question)
    plain = {node.node.node_id: node for node in fetched}
    size = sum(len(node.to_json()) for node in kept)
    assert size < 2 * sum(len(plain[i].to_json()) for i in ids(kept))
    assert all(json.loads(node.to_json())["node"]["embedding"] is None for node in kept)


@pytest.mark.parametrize("metric", ["Cosine", "Dot", "Euclid", "Manhattan"])
def test_a_metric_of_qdrant_changes_nothing_for_vectors_of_one_length(
    metric, nodes, embed_model, llm, question
):
    client = QdrantClient(":memory:")
    client.create_collection(
        "docs", vectors_config=models.VectorParams(size=embed_model.dimension, distance=metric)
    )
    index = over(QdrantVectorStore("docs", client=client, index_doc_id=False), nodes, embed_model)

    def kept(**settings):
        reranker = SIFTReranker(top_n=5, **settings)
        engine = index.as_query_engine(
            llm=llm, similarity_top_k=200, node_postprocessors=[reranker]
        )
        return ids(engine.query(question).source_nodes)

    if metric != "Manhattan":  # which orders unit vectors in its own way
        assert kept() == kept(use_scores=False)
    assert len(kept()) == 5


def faiss_index(kind, dimension):
    return {"L2": faiss.IndexFlatL2, "inner product": faiss.IndexFlatIP}[kind](dimension)


@pytest.mark.parametrize("kind", ["L2", "inner product"])
def test_distances_and_similarities_of_faiss_choose_the_same(
    kind, nodes, embed_model, llm, question
):
    index = over(FaissVectorStore(faiss_index(kind, embed_model.dimension)), nodes, embed_model)
    fetched = index.as_retriever(similarity_top_k=200).retrieve(question)
    scores = [node.score for node in fetched]
    assert scores == sorted(scores, reverse=kind != "L2")  # best first, whatever the score is
    by_default = SIFTReranker(top_n=5).postprocess_nodes(fetched, query_str=question)
    by_cosines = SIFTReranker(top_n=5, use_scores=False).postprocess_nodes(
        fetched, query_str=question
    )
    assert ids(by_default) == ids(by_cosines)


def test_distances_of_vectors_of_different_lengths_count_the_right_way_round(embed_model, llm):
    """A long vector in the query's direction is far from it: the store says so, the cosine no."""
    store = FaissVectorStore(faiss.IndexFlatL2(2))

    class Plane(type(embed_model)):
        def vector(self, text):
            x, y = text.split()
            return [float(x), float(y)]

    texts = ["1 0.1", "1 0.3", "1 0.5", "9 0", "0 9"]
    model = Plane()
    index = over(store, [TextNode(id_=text, text=text) for text in texts], model)
    fetched = index.as_retriever(similarity_top_k=9).retrieve("1 0")
    assert ids(fetched) == texts
    chosen = SIFTReranker(top_n=1).postprocess_nodes(fetched, query_str="1 0")
    assert ids(chosen) == ["1 0.1"]
    by_cosines = SIFTReranker(top_n=1, use_scores=False).postprocess_nodes(fetched, query_str="1 0")
    assert ids(by_cosines) == ["9 0"]


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


class Order(BaseEventHandler):
    """Notes kinds of events, and in whose context they are heard."""

    heard: list = Field(default_factory=list)

    def handle(self, event, **kwargs):
        if "ReRank" in event.class_name():
            self.heard.append((event.class_name(), caller.get()))


class Callbacks(BaseCallbackHandler):
    def __init__(self, heard):
        super().__init__([], [])
        self.heard = heard

    def on_event_start(self, event_type, payload=None, event_id="", parent_id="", **kwargs):
        if event_type == CBEventType.RERANKING:
            self.heard.append(("start", caller.get()))
        return event_id

    def on_event_end(self, event_type, payload=None, event_id="", **kwargs):
        if event_type == CBEventType.RERANKING:
            self.heard.append(("end", caller.get()))

    def start_trace(self, trace_id=None):
        pass

    def end_trace(self, trace_id=None, trace_map=None):
        pass


caller = ContextVar("caller", default="nobody")


@pytest.mark.parametrize("use_async", [False, True], ids=["called", "awaited"])
async def test_events_come_in_order_and_in_the_context_of_the_caller(
    use_async, build_index, nodes, embed_model, question
):
    root, order = get_dispatcher(), Order()
    before = list(root.event_handlers)
    root.add_event_handler(order)
    fetched = build_index("faiss", nodes, embed_model).as_retriever(similarity_top_k=200)
    found = fetched.retrieve(question)
    reranker = SIFTReranker(top_n=3, callback_manager=CallbackManager([Callbacks(order.heard)]))
    caller.set("me")
    try:
        if use_async:
            await reranker.apostprocess_nodes(found, query_str=question)
        else:
            reranker.postprocess_nodes(found, query_str=question)
    finally:
        root.event_handlers = before
    names = ["ReRankStartEvent", "start", "end", "ReRankEndEvent"]
    assert order.heard == [(name, "me") for name in names]


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


def test_scores_only_fall(build_index, nodes, embed_model, question):
    """Gains do not: an engine that sorts by score must keep the order of choice."""
    found = SIFTRetriever.from_index(build_index("qdrant", nodes, embed_model), top_n=99)
    scores = [node.score for node in found.retrieve(question)]
    assert len(scores) == len(nodes)
    assert np.all(np.diff(scores) < 0)
