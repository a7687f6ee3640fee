"""Spans of choices: their tree, what they say, what they keep to themselves, what they cost."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading

import numpy as np
import pytest

pytest.importorskip("opentelemetry.sdk", reason="needs the extra otel")

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import StatusCode

from sift_core import (
    CandidatePool,
    CandidateSourceError,
    ChoiceOptions,
    InMemorySource,
    InvalidInputError,
    Query,
    achoose,
    asearch,
    choose,
    search,
)
from sift_core.sources.multi_query import queries_of
from sift_core.testing import HashingEmbedder
from sift_core.tracing import CONTENT_VARIABLE, MAX_TEXT, NO_SPAN, carried, span, trace_headers
from tests.traces import Collector, provided

EMBEDDER = HashingEmbedder()
SECRET = "zebra"
TEXTS = [f"the {SECRET} number {i} eats grass{i % 7} and leaf{i * i}" for i in range(260)]
SEARCH = [
    "invoke_workflow sift.search",
    "  retrieval InMemorySource (fetch)",
    "  rerank ContextSelector (select)",
    "  retrieval InMemorySource (hop)",
    "  rerank ContextSelector (select)",
]


@pytest.fixture(scope="module")
def source():
    vectors = EMBEDDER.embed_documents(TEXTS)
    return InMemorySource(vectors, TEXTS, embedder_name=EMBEDDER.name)


@pytest.fixture(scope="module")
def query():
    return queries_of([f"which {SECRET} eats grass3 and leaf49?"], EMBEDDER)


@pytest.fixture
def content(monkeypatch):
    monkeypatch.setenv(CONTENT_VARIABLE, "true")


OPTIONS = ChoiceOptions(n_select=4, n_candidates=40)


def pool_of(source, query, n=40):
    return source.fetch(query, n)


def test_a_search_is_a_tree_of_its_stages(traces, source, query):
    search(source, query, OPTIONS)
    assert traces.tree() == SEARCH
    assert len(traces.ids) == 1


async def test_a_search_in_an_event_loop_is_the_same_tree(traces, source, query):
    await asearch(source, query, OPTIONS)
    assert traces.tree() == SEARCH


async def test_searches_at_once_do_not_mix(traces, source, query):
    await asyncio.gather(*(asearch(source, query, OPTIONS) for _ in range(5)))
    assert traces.tree() == SEARCH * 5
    assert len(traces.ids) == 5


async def test_a_choice_is_one_span_below_the_current_one_in_threads_too(traces, source, query):
    pool = pool_of(source, query)
    with trace.get_tracer("app").start_as_current_span("app"):
        choose(pool, query, OPTIONS)
        await achoose(pool, query, OPTIONS)
    assert traces.tree() == ["app", *["  rerank ContextSelector (select)"] * 2]


def test_attributes_are_those_of_the_conventions(traces, source, query):
    chosen = search(source, query, OPTIONS)
    fetch, hop = [one for one in traces.spans if one.name.startswith("retrieval")]
    select = [one for one in traces.spans if one.name.startswith("rerank")][-1]
    assert fetch.kind is trace.SpanKind.CLIENT
    assert fetch.attributes["gen_ai.operation.name"] == "retrieval"
    assert fetch.attributes["gen_ai.retrieval.top_k"] == 40
    assert fetch.attributes["openinference.span.kind"] == "RETRIEVER"
    assert fetch.attributes["retrieval.documents.0.document.id"] == chosen.pool.document_ids[0]
    assert fetch.attributes["retrieval.documents.0.document.score"] == pytest.approx(
        chosen.pool.similarities[0]
    )
    assert hop.attributes["sift.n_candidates"] == chosen.hop.n_new > 0
    assert select.attributes["openinference.span.kind"] == "RERANKER"
    assert select.attributes["reranker.model_name"] == "ContextSelector"
    assert select.attributes["reranker.top_k"] == 4
    for i, name in enumerate(chosen.chunks.document_ids):
        assert select.attributes[f"reranker.output_documents.{i}.document.id"] == name
    assert select.attributes["sift.stop_reason"] == chosen.stop_reason.value
    whole = traces.named("invoke_workflow").attributes
    assert (whole["sift.n_chosen"], whole["gen_ai.workflow.name"]) == (4, "sift.search")
    # More than 128 are cut by the SDK without a word.
    assert all(one.dropped_attributes == 0 for one in traces.spans)


def test_a_source_is_named_by_its_collection(traces, query):
    qdrant_client = pytest.importorskip("qdrant_client")
    from sift_core.sources import QdrantSource

    client = qdrant_client.QdrantClient(":memory:")
    try:
        store = QdrantSource(client, "docs", embedder_name=EMBEDDER.name)
        with pytest.raises(CandidateSourceError):
            search(store, query, OPTIONS)  # there is no such collection
    finally:
        client.close()
    assert traces.named("retrieval").name == "retrieval docs"


def test_no_text_is_recorded_unless_it_is_asked_for(traces, source, query):
    search(source, query, OPTIONS)
    with pytest.raises(InvalidInputError):
        choose(pool_of(source, query), Query(text=SECRET, embedding=np.zeros(64)), OPTIONS)
    assert SECRET not in traces.texts()


@pytest.mark.parametrize("value", ["true", "SPAN_ONLY", "span_and_event"])
def test_texts_are_recorded_where_the_variable_says_so(traces, source, query, monkeypatch, value):
    monkeypatch.setenv(CONTENT_VARIABLE, value)
    chosen = search(source, query, OPTIONS)
    fetch = next(one for one in traces.spans if one.name.startswith("retrieval"))
    select = [one for one in traces.spans if one.name.startswith("rerank")][-1]
    assert fetch.attributes["gen_ai.retrieval.query.text"] == query.text
    listed = json.loads(fetch.attributes["gen_ai.retrieval.documents"])
    assert listed[0]["id"] == chosen.pool.document_ids[0]
    assert select.attributes["reranker.query"] == select.attributes["input.value"] == query.text
    name = "reranker.output_documents.0.document.content"
    assert select.attributes[name] == chosen.chunks.texts[0]
    assert all(one.dropped_attributes == 0 for one in traces.spans)


@pytest.mark.parametrize("value", ["", "false", "EVENT_ONLY", "NO_CONTENT", "0"])
def test_other_values_record_none(traces, source, query, monkeypatch, value):
    monkeypatch.setenv(CONTENT_VARIABLE, value)
    search(source, query, OPTIONS)
    assert SECRET not in traces.texts()


def test_texts_and_lists_are_bounded_and_whole(traces, content):
    texts = [f"{SECRET} {i} " + "é" * 10_000 for i in range(150)]
    vectors = EMBEDDER.embed_documents([text[:20] for text in texts])
    pool = CandidatePool(
        document_ids=[f"\udcff{i}" + "x" * 5000 for i in range(150)],  # as of a file's odd name
        texts=texts,
        embeddings=vectors,
        similarities=np.ones(150),
        metadata=[{}] * 150,
    )
    question = Query(text="q" * 10_000, embedding=vectors[0])
    choose(pool, question, ChoiceOptions(n_select=100, words=0))
    (select,) = traces.spans
    recorded = [one for one in select.attributes.values() if isinstance(one, str)]
    assert max(map(len, recorded)) == MAX_TEXT
    assert select.attributes["reranker.input_documents.0.document.id"].startswith("\ufffd0x")
    assert len(select.attributes) < 128
    assert select.attributes["sift.n_chosen"] == 100
    "".join(recorded).encode()  # no half of a surrogate pair is left


class Broken:
    """A store that has gone."""

    name = "docs"

    def fetch(self, query, n_candidates, *, filter=None):
        raise CandidateSourceError(f"the store is gone: {query.text}")

    async def afetch(self, query, n_candidates, *, filter=None):
        raise CandidateSourceError(f"the store is gone: {query.text}")


def test_an_error_gives_each_span_around_it_its_type_and_status(traces, query):
    with pytest.raises(CandidateSourceError):
        search(Broken(), query, OPTIONS)
    assert [one.name for one in traces.spans] == ["invoke_workflow sift.search", "retrieval Broken"]
    for one in traces.spans:
        assert one.status.status_code is StatusCode.ERROR
        assert one.attributes["error.type"] == "CandidateSourceError"
    assert SECRET not in traces.texts()  # messages of errors quote texts


def test_its_message_is_recorded_with_the_texts(traces, query, content):
    with pytest.raises(CandidateSourceError):
        search(Broken(), query, OPTIONS)
    fetch = traces.named("retrieval")
    assert fetch.status.description == f"the store is gone: {query.text}"
    assert [one.name for one in fetch.events] == ["exception"]


async def test_a_cancelled_search_is_no_error(traces, query):
    class Slow(Broken):
        async def afetch(self, query, n_candidates, *, filter=None):
            await asyncio.sleep(60)

    task = asyncio.create_task(asearch(Slow(), query, OPTIONS))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(traces.spans) == 2
    for one in traces.spans:
        assert one.status.status_code is StatusCode.UNSET
        assert one.attributes["sift.is_cancelled"] is True


def test_wrong_arguments_are_refused_as_without_traces(traces, source):
    with pytest.raises(InvalidInputError, match="query"):
        search(source, "text", OPTIONS)
    with pytest.raises(TypeError, match=r"search\(\)"):
        search()


def test_without_a_provider_nothing_is_made(source, query):
    with provided(None):
        search(source, query, OPTIONS)
        assert span("name", {}) is NO_SPAN
        assert trace_headers() == {}


def test_a_span_that_is_not_sampled_passes_that_on(source, query):
    with provided(TracerProvider(sampler=ALWAYS_OFF)):
        with span("outer", {}) as outer:
            assert not outer.is_recording
            chosen = search(source, query, OPTIONS)
            flags = int(trace_headers()["traceparent"][-2:], 16)
            assert not flags & trace.TraceFlags.SAMPLED
    assert len(chosen) == 4


def test_a_thread_has_the_span_that_is_carried_to_it(traces):
    found = []
    with span("here", {}):
        job = threading.Thread(target=carried(lambda: found.append(trace_headers())))
        bare = threading.Thread(target=lambda: found.append(trace_headers()))
        for one in (job, bare):
            one.start()
            one.join()
        assert found == [trace_headers(), {}]


def test_a_span_may_end_twice(traces):
    one = span("once", {})
    one.end()
    one.end(ValueError("late"))
    one.set({"a": 1})
    (ended,) = traces.spans
    assert ended.status.status_code is StatusCode.UNSET


def test_a_trace_reaches_a_collector_by_otlp(source, content):
    query = queries_of([f"which {SECRET} eats grass3?"], EMBEDDER)
    with Collector() as collector:
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(collector.address)))
        with provided(provider):
            search(source, query, OPTIONS)
        provider.shutdown()
    assert [one.name for _, one in collector.spans] == [
        "retrieval InMemorySource",
        "rerank ContextSelector",
        "retrieval InMemorySource",
        "rerank ContextSelector",
        "invoke_workflow sift.search",
    ]
    (scope, root) = collector.spans[-1]
    assert scope.name == "sift_core"
    assert {one.parent_span_id for _, one in collector.spans[:-1]} == {root.span_id}
    attributes = {one.key: one.value for one in collector.spans[0][1].attributes}
    assert attributes["gen_ai.operation.name"].string_value == "retrieval"
    assert attributes["gen_ai.retrieval.top_k"].int_value == 40


PROGRAM = """
import json, sys
blocked = {blocked}
if blocked:
    class Block:
        def find_spec(self, name, path=None, target=None):
            if name.split(".")[0] == "opentelemetry":
                raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
    sys.meta_path.insert(0, Block())
import numpy as np
from sift_core import InMemorySource, Query, search
source = InMemorySource(np.eye(3), ["a b", "c d", "e f"])
chosen = search(source, Query(text="a", embedding=np.ones(3)))
{more}
print(json.dumps([len(chosen), sorted(n for n in sys.modules if n.startswith("opentelemetry"))]))
"""


@pytest.mark.parametrize("blocked", [True, False])
def test_a_choice_imports_no_opentelemetry_of_its_own(blocked):
    assert run(PROGRAM.format(blocked=blocked, more="")) == [3, []]


@pytest.mark.slow
def test_an_answer_needs_none():
    pytest.importorskip("openai", reason="needs the extra openai")
    more = """
from sift_core.answering import AnswerEngine, OpenAIGenerator
from sift_core.errors import GeneratorError
server = OpenAIGenerator("http://127.0.0.1:9", "m", max_retries=0, window=999)
engine = AnswerEngine(generator=server)
try:
    engine.answer("a", mode="base")
except GeneratorError:
    pass
"""
    assert run(PROGRAM.format(blocked=True, more=more)) == [3, []]


def run(program):
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
