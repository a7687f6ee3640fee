"""What OpenInference, an independent reader of LlamaIndex's events, records of a query."""

import pytest
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, TextNode

from llama_index.postprocessor.sift import SIFTReranker

openinference = pytest.importorskip(
    "openinference.instrumentation.llama_index",
    reason="openinference-instrumentation-llama-index is not installed",
)
pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed")

from openinference.semconv.trace import (  # noqa: E402  # only where they are installed
    DocumentAttributes,
    RerankerAttributes,
    SpanAttributes,
)
from opentelemetry.sdk.trace import TracerProvider  # noqa: E402
from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402
from opentelemetry.sdk.trace.export.in_memory_span_exporter import (  # noqa: E402
    InMemorySpanExporter,
)
from opentelemetry.trace import StatusCode  # noqa: E402

# OpenInference 4.6 calls it on the LLM's metadata; as an error it would lose the LLM's spans.
pytestmark = pytest.mark.filterwarnings("ignore:The `json` method is deprecated")

KIND = SpanAttributes.OPENINFERENCE_SPAN_KIND
N_CANDIDATES = 20
TOP_N = 5


@pytest.fixture
def trace():
    """Record spans until the test is over; other tests are not traced."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    instrumentor = openinference.LlamaIndexInstrumentor()
    instrumentor.instrument(tracer_provider=provider)
    yield exporter
    instrumentor.uninstrument()
    provider.shutdown()


def of_kind(trace, kind):
    return [span for span in trace.get_finished_spans() if span.attributes[KIND] == kind]


def ids(span, prefix):
    """Return the ids of the documents that a span lists, in order."""
    name = f"{prefix}.{{}}.{DocumentAttributes.DOCUMENT_ID}".format
    return [span.attributes[name(i)] for i in range(N_CANDIDATES) if name(i) in span.attributes]


def ancestors(trace, span):
    """Return the spans above one, nearest first."""
    by_id = {other.context.span_id: other for other in trace.get_finished_spans()}
    above = []
    while span.parent is not None:
        span = by_id[span.parent.span_id]
        above.append(span)
    return above


@pytest.fixture(params=["faiss query", "faiss aquery", "qdrant query", "qdrant aquery"])
def ask(request, build_index, nodes, embed_model, async_qdrant_index, llm):
    """Put a question to a query engine over a store, by one of the engine's two methods."""
    store, method = request.param.split()
    if request.param == "qdrant aquery":
        index = async_qdrant_index
    else:
        index = build_index(store, nodes, embed_model)

    async def put(question, *rerankers):
        engine = index.as_query_engine(
            llm=llm, similarity_top_k=N_CANDIDATES, node_postprocessors=list(rerankers)
        )
        answer = getattr(engine, method)(question)
        return answer if method == "query" else await answer

    return put


async def test_a_query_has_one_reranker_span_that_lists_what_came_and_what_was_kept(
    ask, trace, question
):
    kept = (await ask(question, SIFTReranker(top_n=TOP_N))).source_nodes

    (span,) = of_kind(trace, "RERANKER")
    came = ids(span, RerankerAttributes.RERANKER_INPUT_DOCUMENTS)
    assert len(came) == len(set(came)) == N_CANDIDATES
    assert ids(span, RerankerAttributes.RERANKER_OUTPUT_DOCUMENTS) == [n.node_id for n in kept]
    assert len(kept) == TOP_N
    assert span.attributes[RerankerAttributes.RERANKER_QUERY] == question
    assert span.attributes[RerankerAttributes.RERANKER_TOP_K] == TOP_N
    assert span.attributes[RerankerAttributes.RERANKER_MODEL_NAME] == "SIFTReranker"
    assert span.status.status_code is StatusCode.OK
    assert ancestors(trace, span)[0].name.startswith("RetrieverQueryEngine.")


async def test_a_failed_reranking_is_an_error_in_the_trace_up_to_the_query(ask, trace, question):
    class Broken(BaseEmbedding):
        def _get_query_embedding(self, query):
            raise ConnectionError("no model here")

        async def _aget_query_embedding(self, query):
            raise ConnectionError("no model here")

        def _get_text_embedding(self, text):
            raise ConnectionError("no model here")

    class Strangers(BaseNodePostprocessor):
        """Hands on nodes that no store knows, so that they must be embedded."""

        def _postprocess_nodes(self, nodes, query_bundle=None):
            return [NodeWithScore(node=TextNode(text=f"stranger {i}")) for i in range(3)]

    with pytest.raises(ConnectionError, match="no model here"):
        await ask(question, Strangers(), SIFTReranker(top_n=1, embed_model=Broken()))

    (span,) = of_kind(trace, "RERANKER")
    assert ids(span, RerankerAttributes.RERANKER_OUTPUT_DOCUMENTS) == []
    for failed in (span, *ancestors(trace, span)):
        assert failed.status.status_code is StatusCode.ERROR
        assert "no model here" in failed.status.description
    (event,) = span.events
    assert event.name == "exception"
