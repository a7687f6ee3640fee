"""What OpenInference, an independent reader of LangChain's callbacks, records of a chain."""

import json

import pytest
from langchain_core.language_models import ParrotFakeChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnablePassthrough

from langchain_sift import SIFTRetriever
from sift_core import CandidateSourceError

openinference = pytest.importorskip(
    "openinference.instrumentation.langchain",
    reason="openinference-instrumentation-langchain is not installed",
)

from openinference.semconv.trace import (  # noqa: E402  # only where they are installed
    DocumentAttributes,
    SpanAttributes,
)
from opentelemetry.sdk.trace import TracerProvider  # noqa: E402
from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402
from opentelemetry.sdk.trace.export.in_memory_span_exporter import (  # noqa: E402
    InMemorySpanExporter,
)
from opentelemetry.trace import StatusCode  # noqa: E402

pytestmark = pytest.mark.slow

KIND = SpanAttributes.OPENINFERENCE_SPAN_KIND
K = 3


@pytest.fixture
def trace():
    """Record spans until the test is over; other tests are not traced."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    instrumentor = openinference.LangChainInstrumentor()
    instrumentor.instrument(tracer_provider=provider)
    yield exporter
    instrumentor.uninstrument()
    provider.shutdown()


@pytest.fixture
def store(make_qdrant, documents):
    return make_qdrant(documents)


@pytest.fixture(params=["invoke", "ainvoke"])
def call(request):
    """Call a runnable by one of its two methods."""

    async def put(runnable, value, **options):
        result = getattr(runnable, request.param)(value, **options)
        return result if request.param == "invoke" else await result

    return put


def chain_over(retriever):
    prompt = ChatPromptTemplate.from_template("{context}\n\nQuestion: {question}")
    inputs = {"context": retriever, "question": RunnablePassthrough()}
    return inputs | prompt | ParrotFakeChatModel() | StrOutputParser()


def of_kind(trace, kind):
    """Return the finished spans of a kind, in the order in which they began."""
    spans = [span for span in trace.get_finished_spans() if span.attributes[KIND] == kind]
    return sorted(spans, key=lambda span: span.start_time)


def column(span, field):
    """Return one field of the documents that a RETRIEVER span lists, in order."""
    prefix = f"{SpanAttributes.RETRIEVAL_DOCUMENTS}."
    numbers = {
        int(name.removeprefix(prefix).split(".")[0])
        for name in span.attributes
        if name.startswith(prefix)
    }
    return [span.attributes.get(f"{prefix}{i}.{field}") for i in range(len(numbers))]


def texts(span):
    return column(span, DocumentAttributes.DOCUMENT_CONTENT)


def ancestors(trace, span):
    """Return the spans above one, nearest first."""
    by_id = {other.context.span_id: other for other in trace.get_finished_spans()}
    above = []
    while span.parent is not None:
        span = by_id[span.parent.span_id]
        above.append(span)
    return above


async def test_a_chain_has_one_retriever_span_with_the_documents_chosen(
    call, store, trace, question
):
    retriever = SIFTRetriever(vectorstore=store, k=K)
    expected = [document.page_content for document in retriever.invoke(question)]
    trace.clear()

    await call(chain_over(retriever), question)

    (span,) = of_kind(trace, "RETRIEVER")
    assert span.name == "SIFTRetriever"
    assert texts(span) == expected
    assert len(expected) == K
    assert span.attributes[SpanAttributes.INPUT_VALUE] == question
    assert span.status.status_code is StatusCode.OK
    told = [json.loads(text)["sift"] for text in column(span, DocumentAttributes.DOCUMENT_METADATA)]
    variances = [each["variance"] for each in told]
    assert variances == sorted(variances, reverse=True)
    above = ancestors(trace, span)
    assert {of.attributes[KIND] for of in above} == {"CHAIN"}
    (language_model,) = of_kind(trace, "LLM")
    assert ancestors(trace, language_model)[-1].context == above[-1].context
    assert span.end_time <= language_model.start_time


async def test_a_store_that_is_gone_is_an_error_in_the_trace_up_to_the_chain(
    call, make_qdrant, documents, trace, question
):
    store = make_qdrant(documents)
    chain = chain_over(SIFTRetriever(vectorstore=store, k=K))
    store.client.delete_collection("docs")
    with pytest.raises(CandidateSourceError):
        await call(chain, question)
    (span,) = of_kind(trace, "RETRIEVER")
    assert texts(span) == []
    for failed in (span, *ancestors(trace, span)):
        assert failed.status.status_code is StatusCode.ERROR
        assert "CandidateSourceError" in failed.status.description
        assert [event.name for event in failed.events] == ["exception"]
