"""The choice is a span below what the application has in hand, in the framework's threads too."""

import pytest

pytest.importorskip("opentelemetry.sdk", reason="needs the extra otel of sift-rerank")

from haystack import Pipeline
from haystack.components.retrievers.in_memory import InMemoryEmbeddingRetriever
from haystack.document_stores.in_memory import InMemoryDocumentStore
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from haystack_integrations.components.rankers.sift import SIFTRanker

SELECT = "rerank ContextSelector"


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
def pipeline(documents):
    store = InMemoryDocumentStore(embedding_similarity_function="cosine")
    store.write_documents(documents)
    made = Pipeline()
    made.add_component("retriever", InMemoryEmbeddingRetriever(store, return_embedding=True))
    made.add_component("ranker", SIFTRanker(top_k=3))
    made.connect("retriever.documents", "ranker.documents")
    return made


@pytest.fixture
def asked(query_embedding, question):
    vector = {"query_embedding": query_embedding}
    return {"retriever": vector, "ranker": {**vector, "query": question}}


def test_a_pipeline_is_traced(memory, pipeline, asked):
    with app_span() as app:
        found = pipeline.run(asked)["ranker"]["documents"]
    assert below(memory, app) == [SELECT]
    assert chosen(memory) == [one.id for one in found]


async def test_an_awaited_pipeline_is_traced(memory, pipeline, asked):
    with app_span() as app:
        await pipeline.run_async(asked)
    assert below(memory, app) == [SELECT]
