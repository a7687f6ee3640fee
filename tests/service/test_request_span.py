"""Spans of requests: the caller's trace, the route, streams, and headers that nobody trusts."""

from __future__ import annotations

import httpx
import pytest

pytest.importorskip("opentelemetry.sdk", reason="needs the extra otel")

from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

from sift_core.answering import AnswerEngine, OpenAIGenerator
from sift_core.service import create_app
from tests.answering.openai_double import MODEL, Api, serving_api
from tests.service.servers import (
    CHAT,
    RERANK,
    SETTINGS,
    BrokenEmbedder,
    service,
    serving,
    small_store,
    until,
)
from tests.traces import PROVIDER, provided

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CALLER = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
CONTEXT = [
    "POST /v1/chat/completions",
    "  embeddings hashing-64 (embed)",
    "  invoke_workflow sift.search",
    "    retrieval InMemorySource (fetch)",
    "    rerank ContextSelector (select)",
    "    retrieval InMemorySource (hop)",
    "  chat random_model (generate)",
]


def ended(traces, n):
    """Wait for spans that end after the client has its answer."""
    until(lambda: len(traces.spans) >= n, seconds=30)
    return traces.spans


def test_a_request_continues_its_callers_trace(traces, http):
    answer = http.post("/v1/rerank", json=RERANK, headers=CALLER)
    assert answer.status_code == 200
    ended(traces, 3)
    assert traces.tree() == [
        "POST /v1/rerank",
        "  embeddings hashing-64 (embed)",
        "  rerank ContextSelector (select)",
    ]
    root = traces.named("POST")
    assert f"{root.context.trace_id:032x}" == TRACE
    assert f"{root.parent.span_id:016x}" == PARENT
    assert root.kind is SpanKind.SERVER
    assert root.attributes["http.route"] == root.attributes["url.path"] == "/v1/rerank"
    assert root.attributes["http.request.method"] == "POST"
    assert root.attributes["http.response.status_code"] == 200
    assert "sift.is_cancelled" not in root.attributes
    assert root.status.status_code is StatusCode.UNSET


def test_a_search_is_one_trace(traces, http):
    http.post("/search", json={"query": "How to fold a boat?"}).raise_for_status()
    ended(traces, 5)
    assert traces.tree()[:3] == [
        "POST /search",
        "  embeddings hashing-64 (embed)",
        "  invoke_workflow sift.search",
    ]


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_is_one_trace_until_its_stream_has_ended(traces, url, stream):
    body = {**CHAT, "stream": stream}
    httpx.post(f"{url}/v1/chat/completions", json=body, headers=CALLER, timeout=300)
    spans = ended(traces, len(CONTEXT))
    assert traces.tree() == CONTEXT
    assert [f"{number:032x}" for number in traces.ids] == [TRACE]
    root, written = traces.named("POST"), traces.named("chat")
    assert root.start_time <= written.start_time < written.end_time <= root.end_time
    assert len(spans) == len(CONTEXT)


def test_a_client_that_leaves_its_stream_ends_the_spans(traces, url):
    body = {**CHAT, "stream": True, "max_tokens": 200}
    with httpx.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=300) as answer:
        next(answer.iter_lines())
    ended(traces, 1)
    until(lambda: any(one.name == CONTEXT[0] for one in traces.spans))
    assert traces.named("POST").attributes["sift.is_cancelled"]


@pytest.mark.parametrize(
    "header",
    [
        "",
        "00",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{TRACE.upper()}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}-01-more",
        f"00-{TRACE}-{PARENT}-01" + "-x" * 2000,
        "é" * 20,
        "'; drop table spans; --",
    ],
)
def test_a_header_that_w3c_would_not_write_begins_a_trace(traces, http, caplog, header):
    raw = [(b"traceparent", header.encode("latin-1"))]
    assert http.post("/v1/rerank", json=RERANK, headers=raw).status_code == 200
    ended(traces, 3)
    root = traces.named("POST")
    assert root.parent is None
    assert f"{root.context.trace_id:032x}" != TRACE
    assert not caplog.records


def test_two_parents_are_none(traces, http):
    raw = [(b"traceparent", value.encode()) for value in [*CALLER.values()] * 2]
    assert http.post("/v1/rerank", json=RERANK, headers=raw).status_code == 200
    ended(traces, 3)
    assert traces.named("POST").parent is None


def test_baggage_of_a_caller_goes_nowhere(traces):
    with serving_api(Api()) as api, serving(app_over(api)) as url:
        headers = {**CALLER, "baggage": "user=secret", "tracestate": "vendor=1"}
        httpx.post(f"{url}/v1/chat/completions", json=CHAT, headers=headers, timeout=300)
        sent = api.headers[-1]
    assert sent["traceparent"].startswith(f"00-{TRACE}-")
    assert sent["tracestate"] == "vendor=1"
    assert "baggage" not in sent


def test_without_a_provider_a_callers_trace_is_passed_on():
    with provided(None), serving_api(Api()) as api, serving(app_over(api)) as url:
        httpx.post(f"{url}/v1/chat/completions", json=CHAT, headers=CALLER, timeout=300)
        assert api.headers[-1]["traceparent"] == CALLER["traceparent"]
        httpx.post(f"{url}/v1/chat/completions", json=CHAT, timeout=300)
        assert "traceparent" not in api.headers[-1]


def app_over(api):
    """Return the service over a server that writes."""
    engine = AnswerEngine(generator=OpenAIGenerator(api.base_url, MODEL))
    from sift_core.testing import HashingEmbedder

    embedder = HashingEmbedder(64)
    return create_app(engine, source=small_store(embedder), embedder=embedder, settings=SETTINGS)


@pytest.mark.parametrize("path", ["/health", "/ready", "/metrics", "/", "/health/"])
def test_what_machines_ask_all_day_is_not_traced(traces, http, path):
    assert http.get(path).status_code == 200
    http.get("/v1/models").raise_for_status()
    ended(traces, 1)
    assert traces.tree() == ["GET /v1/models"]


async def test_what_clients_make_up_is_no_name(traces, source, embedder):
    app = create_app(source=source, embedder=embedder, settings=SETTINGS)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        await client.get("/no/such/path?question=secret")
        await client.request("BREW", "/v1/rerank")
        await client.get("/v1/models/unknown")
    assert [one.name for one in traces.spans] == [
        "GET",
        "HTTP /v1/rerank",
        "GET /v1/models/{name:path}",
    ]
    assert traces.spans[1].attributes["http.request.method"] == "_OTHER"
    assert "secret" not in traces.texts()


def test_a_refusal_is_the_clients_fault_and_a_defect_the_services(traces):
    with service(embedder=BrokenEmbedder()) as client:
        assert client.post("/v1/rerank", json={}).status_code == 400
        assert client.post("/v1/rerank", json=RERANK).status_code == 500
    refused, failed = [one for one in ended(traces, 3) if one.name.startswith("POST")]
    assert refused.status.status_code is StatusCode.UNSET
    assert failed.status.status_code is StatusCode.ERROR
    assert failed.attributes["error.type"] == "500"
    assert traces.named("embeddings").attributes["error.type"] == "RuntimeError"
    assert "secret" not in traces.texts()


async def test_the_span_of_another_instrumentation_is_the_only_one_of_a_request(
    traces, source, embedder
):
    app = create_app(source=source, embedder=embedder, settings=SETTINGS)
    tracer = PROVIDER.get_tracer("other")

    async def instrumented(scope, receive, send):
        with tracer.start_as_current_span("theirs", kind=trace.SpanKind.SERVER):
            await app(scope, receive, send)

    transport = httpx.ASGITransport(instrumented)
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        assert (await client.post("/v1/rerank", json=RERANK)).status_code == 200
    assert traces.tree()[0] == "theirs"
    assert not any(one.name.startswith("POST") for one in traces.spans)
