"""Spans of answers: whole, as streams, learned, failed, cancelled, and written by servers."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("opentelemetry.sdk", reason="needs the extra otel")

from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.trace import StatusCode

from sift_core import AnswerError, InvalidInputError
from sift_core.answering import OpenAIGenerator
from sift_core.tracing import CONTENT_VARIABLE, trace_headers
from tests.answering.openai_double import MODEL, Api, serving_api
from tests.engines import engine_of
from tests.traces import provided

TEXTS = [f"the quagga number {i} eats grass" for i in range(12)]
QUESTION = "which quagga eats grass?"
SEARCH = [
    "  embeddings hashing-64 (embed)",
    "  invoke_workflow sift.search",
    "    retrieval InMemorySource (fetch)",
    "    rerank ContextSelector (select)",
]
WRITE = "  chat random_model (generate)"
CONTEXT = ["invoke_workflow sift.answer", *SEARCH, WRITE]


@pytest.fixture(scope="module")
def engine(small_lm):
    return engine_of(small_lm, TEXTS, max_new_tokens=4)


def wait_for(traces, n):
    """Wait until so many spans have ended."""
    end = time.monotonic() + 30
    while len(traces.spans) < n:
        assert time.monotonic() < end, traces.tree()
        time.sleep(0.01)


def test_an_answer_is_one_trace(traces, engine):
    answer = engine.answer(QUESTION, mode="context")
    assert traces.tree() == CONTEXT
    assert len(traces.ids) == 1
    written = traces.named("chat")
    assert written.attributes["gen_ai.operation.name"] == "chat"
    assert written.attributes["gen_ai.provider.name"] == "transformers"
    assert written.attributes["gen_ai.request.max_tokens"] == 4
    assert written.attributes["gen_ai.response.finish_reasons"] == (answer.finish_reason,)
    assert written.attributes["gen_ai.usage.input_tokens"] == answer.n_prompt_tokens
    assert written.attributes["gen_ai.usage.output_tokens"] == answer.n_new_tokens
    assert written.attributes["openinference.span.kind"] == "LLM"
    assert written.attributes["llm.token_count.total"] == (
        answer.n_prompt_tokens + answer.n_new_tokens
    )
    assert written.kind is trace.SpanKind.INTERNAL
    whole = traces.named("invoke_workflow sift.answer").attributes
    assert (whole["sift.mode"], whole["sift.n_read"]) == ("context", answer.n_read)


def test_what_is_learned_and_read_has_its_span(traces, engine):
    engine.answer(QUESTION, mode="both")
    assert traces.tree() == [
        "invoke_workflow sift.answer",
        *SEARCH,
        "  rerank SIFTSelector (select)",
        "  fine_tune random_model (learn)",
        WRITE,
    ]
    learned = traces.named("fine_tune").attributes
    assert learned["sift.n_steps"] > 0
    assert learned["sift.adapter"] == "trained"
    traces.clear()
    session = engine.session(QUESTION, mode="context")
    assert traces.tree()[-1] == "read random_model (read)"
    traces.clear()
    session.answers(["one?", "two?"])
    (batch,) = traces.spans
    assert len(batch.attributes["gen_ai.response.finish_reasons"]) == 2


def test_no_text_is_recorded_by_itself(traces, engine):
    answer = engine.answer(QUESTION, mode="both")
    recorded = traces.texts()
    assert "quagga" not in recorded
    assert answer.text not in recorded


def test_texts_are_recorded_where_they_are_asked_for(traces, engine, monkeypatch):
    monkeypatch.setenv(CONTENT_VARIABLE, "SPAN_ONLY")
    answer = engine.answer(QUESTION, mode="context")
    written = traces.named("chat").attributes
    (message,) = json.loads(written["gen_ai.output.messages"])
    assert message == {
        "role": "assistant",
        "parts": [{"type": "text", "content": answer.text}],
        "finish_reason": answer.finish_reason,
    }
    assert json.loads(written["gen_ai.input.messages"])[-1]["role"] == "user"
    assert written["input.value"].endswith(QUESTION)
    whole = traces.named("invoke_workflow sift.answer").attributes
    assert (whole["input.value"], whole["output.value"]) == (QUESTION, answer.text)


def test_a_stream_that_is_read_is_the_same_tree_and_ends_with_it(traces, engine):
    with engine.stream(QUESTION, mode="context") as stream:
        stream.answer()
        assert traces.tree() == CONTEXT  # nothing is waited for
    assert traces.named("invoke_workflow sift.answer").attributes["sift.mode"] == "context"
    assert trace_headers() == {}  # nothing is left over here


def test_a_stream_ends_though_what_processes_its_span_fails(engine):
    class Broken(SpanProcessor):
        def on_end(self, span):
            if span.name == CONTEXT[0]:
                raise RuntimeError("no room")

    provider = TracerProvider()
    provider.add_span_processor(Broken())
    answers = []
    with provided(provider):
        stream = engine.stream(QUESTION, mode="context")
        reader = threading.Thread(target=lambda: answers.append(stream.answer()), daemon=True)
        reader.start()
        reader.join(60)
    assert answers


def test_a_stream_that_is_closed_ends_its_spans(traces, engine):
    with engine.stream(QUESTION, mode="context", max_new_tokens=400) as stream:
        next(stream)
    assert traces.tree() == CONTEXT
    for name in ("chat", "invoke_workflow sift.answer"):
        one = traces.named(name)
        assert one.status.status_code is StatusCode.UNSET
        assert one.attributes["sift.is_cancelled"] is True


def test_a_stream_that_never_began_ends_its_span(traces, engine):
    model = engine.language_model
    with model.lock.held():  # all workers wait
        others = [engine.stream(QUESTION, mode="context") for _ in range(4)]
        late = engine.stream(QUESTION, mode="context")
        n = len(traces.spans)
        late.close()
        wait_for(traces, n + 1)
        assert traces.spans[-1].name != "chat"
    for one in others:
        one.answer()
    roots = [one for one in traces.spans if one.name.endswith("sift.answer")]
    assert [bool(one.attributes.get("sift.is_cancelled")) for one in roots].count(True) == 1


def test_a_stream_that_nobody_reads_any_more_ends_too(traces, engine):
    stream = engine.stream(QUESTION, mode="context", max_new_tokens=400)
    next(stream)
    del stream
    wait_for(traces, len(CONTEXT))
    assert traces.tree() == CONTEXT


async def test_the_async_twins_are_the_same_trees(traces, engine):
    await engine.aanswer(QUESTION, mode="context")
    assert traces.tree() == CONTEXT
    traces.clear()
    async with await engine.astream(QUESTION, mode="context") as stream:
        await stream.answer()
    assert traces.tree() == CONTEXT
    traces.clear()
    async with await engine.astream(QUESTION, mode="context", max_new_tokens=400) as stream:
        await anext(stream)
    assert traces.named("invoke_workflow sift.answer").attributes["sift.is_cancelled"] is True


async def test_a_cancelled_task_ends_its_spans_without_an_error(traces, engine):
    task = asyncio.create_task(engine.aanswer(QUESTION, mode="context", max_new_tokens=400))
    while not any(one.name.startswith("rerank") for one in traces.spans):
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.to_thread(wait_for, traces, len(CONTEXT) - 1)  # it may not have begun to write
    for one in traces.spans:
        assert one.status.status_code is StatusCode.UNSET


def test_errors_reach_the_spans_around_them(traces, engine):
    def fail(piece):
        raise AnswerError(f"no more of {QUESTION}")

    with pytest.raises(InvalidInputError):
        engine.stream("", mode="context")
    (refused,) = traces.spans
    assert refused.attributes["error.type"] == "InvalidInputError"
    traces.clear()
    with pytest.raises(AnswerError):
        engine.answer(QUESTION, mode="context", on_text=fail)
    for name in ("chat", "invoke_workflow sift.answer"):
        one = traces.named(name)
        assert one.status.status_code is StatusCode.ERROR
        assert one.attributes["error.type"] == "AnswerError"
    assert "quagga" not in traces.texts()


def test_threads_do_not_mix_their_traces(traces, engine):
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda _: engine.stream(QUESTION, mode="context").answer(), range(6)))
    assert len(traces.ids) == 6
    assert traces.tree() == CONTEXT * 6 or sorted(traces.tree()) == sorted(CONTEXT * 6)
    for number in traces.ids:
        names = [one.name for one in traces.spans if one.context.trace_id == number]
        assert len(names) == len(CONTEXT)


async def test_tasks_do_not_mix_their_traces(traces, engine):
    await asyncio.gather(*(engine.aanswer(QUESTION, mode="context") for _ in range(6)))
    assert len(traces.ids) == 6
    for number in traces.ids:
        names = [one.name for one in traces.spans if one.context.trace_id == number]
        assert len(names) == len(CONTEXT)


def test_a_worker_gets_the_span_and_no_adapter(traces, engine):
    """What the caller's flow of control has learned stays there."""
    tuned = engine.prepare(engine.choose(QUESTION, mode="fine_tune"))
    plain = engine.answer("why?", mode="base").text
    model = engine.language_model
    with model.adapted(tuned.tuned.adapter), engine.stream("why?", mode="base") as stream:
        assert stream.answer().text == plain


def test_a_refusal_has_no_span_of_a_model(traces, small_lm):
    answer = engine_of(small_lm, TEXTS, max_new_tokens=4).answer("Quinoa vxzq?")
    assert answer.is_refusal
    assert not any(one.name.startswith("chat") for one in traces.spans)
    assert traces.named("invoke_workflow sift.answer").attributes["sift.is_refusal"] is True


def test_a_server_that_writes_continues_the_trace(traces):
    with serving_api(Api()) as api:
        generator = OpenAIGenerator(api.base_url, MODEL)
        engine = engine_of(generator, TEXTS)
        engine.answer(QUESTION, mode="context")
        written = traces.named(f"chat {MODEL}")
        number, parent = written.context.trace_id, written.context.span_id
        assert api.headers[-1]["traceparent"].startswith(f"00-{number:032x}-{parent:016x}-")
    assert written.kind is trace.SpanKind.CLIENT
    assert written.attributes["gen_ai.provider.name"] == "openai"
    assert traces.tree()[-1] == f"  chat {MODEL} (generate)"


def test_without_a_provider_a_server_gets_no_header():
    with serving_api(Api()) as api:
        engine_of(OpenAIGenerator(api.base_url, MODEL), TEXTS).answer(QUESTION, mode="context")
        assert all("traceparent" not in one for one in api.headers)
