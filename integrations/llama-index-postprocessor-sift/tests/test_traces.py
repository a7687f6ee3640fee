"""The choice is a span below what the application has in hand, in the framework's threads too."""

import pytest

pytest.importorskip("opentelemetry.sdk", reason="needs the extra otel of sift-rerank")

from llama_index.core.query_engine import RetrieverQueryEngine
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from llama_index.postprocessor.sift import SIFTReranker, SIFTRetriever

SELECT = "rerank ContextSelector"
SEARCH = "invoke_workflow sift.search"


@pytest.fixture
def memory(monkeypatch):
    """What is traced meanwhile. The API sets a provider only once in a process."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    return exporter


def app_span():
    return trace.get_tracer("app").start_as_current_span("app")


def below(memory, app):
    """Return the names of the spans of the library right below one of the application."""
    ours = [
        one for one in memory.get_finished_spans() if one.instrumentation_scope.name == "sift_core"
    ]
    assert {one.context.trace_id for one in ours} == {app.get_span_context().trace_id}
    known = {one.context.span_id for one in ours} | {app.get_span_context().span_id}
    assert {one.parent.span_id for one in ours} <= known
    number = app.get_span_context().span_id
    return [one.name for one in ours if one.parent.span_id == number]


def chosen(memory):
    """Return the ids that the last choice names."""
    select = [one for one in memory.get_finished_spans() if one.name == SELECT][-1]
    return [
        value
        for name, value in select.attributes.items()
        if name.startswith("reranker.output_documents.") and name.endswith(".document.id")
    ]


@pytest.fixture
def index(build_index, nodes, embed_model):
    return build_index("simple", nodes, embed_model)


def test_a_query_engine_is_traced(memory, index, llm, question):
    engine = index.as_query_engine(llm, node_postprocessors=[SIFTReranker(top_n=3)])
    with app_span() as app:
        found = engine.query(question).source_nodes
    assert below(memory, app) == [SELECT]
    assert chosen(memory) == [one.node.node_id for one in found]


async def test_an_awaited_query_engine_is_traced(memory, index, llm, question):
    engine = index.as_query_engine(llm, node_postprocessors=[SIFTReranker(top_n=3)])
    with app_span() as app:
        await engine.aquery(question)
    assert below(memory, app) == [SELECT]


async def test_a_retriever_is_traced(memory, index, llm, question):
    retriever = SIFTRetriever.from_index(index, top_n=3)
    with app_span() as app:
        RetrieverQueryEngine.from_args(retriever, llm=llm).query(question)
        await retriever.aretrieve(question)
    assert below(memory, app) == [SEARCH] * 2
