"""The choice is a span below what the application has in hand, in the framework's threads too."""

import pytest

pytest.importorskip("opentelemetry.sdk", reason="needs the extra otel of sift-rerank")

from langchain_core.runnables import RunnableParallel
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from langchain_sift import SIFTRetriever

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
def retriever(make_in_memory, documents):
    return SIFTRetriever(vectorstore=make_in_memory(documents), k=3)


def test_a_retriever_is_traced(memory, retriever, question):
    with app_span() as app:
        found = retriever.invoke(question)
    assert below(memory, app) == [SEARCH]
    assert chosen(memory) == [one.id for one in found]


def test_a_batch_in_threads_is_traced(memory, retriever, question):
    with app_span() as app:
        retriever.batch([question, f"{question}?", "water"])
    assert below(memory, app) == [SEARCH] * 3


def test_branches_in_threads_are_traced(memory, retriever, question):
    with app_span() as app:
        RunnableParallel(one=retriever, other=retriever).invoke(question)
    assert below(memory, app) == [SEARCH] * 2


async def test_an_awaited_retriever_is_traced(memory, retriever, question):
    with app_span() as app:
        await retriever.ainvoke(question)
        await retriever.abatch([question, "water"])
    assert below(memory, app) == [SEARCH] * 3
