"""Traps of LlamaIndex and of two stores, which no other file has."""

import asyncio
from itertools import pairwise

import pytest
from llama_index.core.bridge.pydantic import Field
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.span_handlers import SimpleSpanHandler
from llama_index.core.llms import MockLLM
from llama_index.core.postprocessor import PrevNextNodePostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import get_response_synthesizer
from llama_index.core.schema import NodeRelationship, NodeWithScore, RelatedNodeInfo

from llama_index.postprocessor.sift import SIFTReranker, SIFTRetriever
from sift_core import ContextSelector


def ids(scored_nodes):
    return [node.node.node_id for node in scored_nodes]


@pytest.fixture(autouse=True)
def _tracking():
    SIFTReranker()


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
