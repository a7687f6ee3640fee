"""The spans of an answer: the whole of it, what is learned and read for it, and what is written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, ParamSpec, TypeVar, cast

from sift_core.answering.answer import Answer
from sift_core.answering.model.text_model import (
    Generation,
    Prompt,
    RefusalWriter,
    TextGenerator,
    as_conversation,
)
from sift_core.answering.report import FineTuningReport
from sift_core.choice_spans import model_name, workflow_span
from sift_core.tracing import KIND, NO_SPAN, STAGE, Span, records_content, short, span, traced
from sift_core.types import Message

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
MAX_MESSAGES = 10  # of a chat, the last ones
_SETTINGS = {"max_new_tokens": "max_tokens", "temperature": "temperature", "top_p": "top_p"}

_of_stream: ContextVar[Span] = ContextVar("sift_stream_span", default=NO_SPAN)


def answer_span(_: Any, question: Any = "", *__: Any, **___: Any) -> Span:
    """Return the span around all stages of an answer; `answered` completes it."""
    return workflow_span("sift.answer", getattr(question, "question", question))


def answered(found: Span, answer: Answer) -> None:
    """Tell the span of an answer what came of it."""
    about = {"sift.mode": answer.mode.value, "sift.is_refusal": answer.is_refusal}
    found.set({**about, "sift.n_read": answer.n_read})
    if records_content():
        found.set({"output.value": short(answer.text)})


def traced_answer(call: Callable[P, R]) -> Callable[P, R]:
    """Decorate a method that answers a question, or its async twin."""
    return traced(answer_span, answered)(call)


def traced_stream(method: Callable[P, S]) -> Callable[P, S]:
    """Return a method, or a coroutine function, whose span ends with the stream that it returns."""

    @wraps(method)
    def run(*args: P.args, **options: P.kwargs) -> S:
        with _handing_over(answer_span(*args, **options)):
            return method(*args, **options)

    @wraps(method)
    async def arun(*args: P.args, **options: P.kwargs) -> Any:
        with _handing_over(answer_span(*args, **options)):
            return await cast("Any", method(*args, **options))

    return cast("Callable[P, S]", arun) if iscoroutinefunction(method) else run


@contextmanager
def _handing_over(found: Span) -> Iterator[None]:
    """Make a span current for the block, whose stream takes it over; an error ends it."""
    token = _of_stream.set(found)
    try:
        with found.current():
            yield
    except BaseException as error:
        found.end(error)
        raise
    finally:
        _of_stream.reset(token)


def span_of_stream() -> Span:
    """Return the span that the stream which is being made has to end."""
    return _of_stream.get()


def end_stream(found: Span, answer: Answer | None, error: BaseException | None) -> None:
    """End the span of a stream, with its answer or with why there is none."""
    if found.is_recording and answer is not None:
        answered(found, answer)
    found.end(error)


def learn_span(model: str, n_chunks: int) -> Span:
    """Return the span in which a model learns from chunks; `learned` completes it."""
    return _model_span("fine_tune", model, {"sift.n_chunks": n_chunks, STAGE: "learn"})


def learned(found: Span, report: FineTuningReport) -> None:
    """Tell a span how a model has learned."""
    about = {"sift.n_steps": report.n_steps, "sift.adapter": report.source}
    found.set({**about, "sift.stop_reason": report.stop_reason})


def read_span(model: str) -> Span:
    """Return the span in which a model reads what all prompts of a session begin with."""
    return _model_span("read", model, {STAGE: "read"})


def _model_span(operation: str, model: str, about: Mapping[str, str | int]) -> Span:
    name = model_name(model)
    operation_of = {"gen_ai.operation.name": operation, "gen_ai.request.model": name}
    return span(f"{operation} {name}", {**operation_of, KIND: "CHAIN", **about})


def write_traced(writer: TextGenerator, model: str, prompt: Prompt, **options: Any) -> Generation:
    """Return what a writer generates, in a span. A refusal has none, since no model writes it.

    Args:
        writer: Generates.
        model: The model's name.
        prompt: As for `generate`.
        **options: Of `generate`.
    """
    if isinstance(writer, RefusalWriter):
        return writer.generate(prompt, **options)
    with write_span(writer, model, [prompt], options) as found:
        generation = writer.generate(prompt, **options)
        written(found, [generation])
    return generation


def write_span(
    writer: object, model: str, prompts: Sequence[Prompt], options: Mapping[str, Any]
) -> Span:
    """Return the span in which a model writes one text or a batch; `written` completes it."""
    name, is_server = model_name(model), hasattr(writer, "provider_name")
    provider = getattr(writer, "provider_name", "transformers")
    about = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": provider,
        "gen_ai.request.model": name,
        "llm.model_name": name,
        KIND: "LLM",
        STAGE: "generate",
    }
    found = span(f"chat {name}", about, "CLIENT" if is_server else "INTERNAL")
    if found.is_recording:
        found.set(
            {
                f"gen_ai.request.{ours}": options[name]
                for name, ours in _SETTINGS.items()
                if isinstance(options.get(name), int | float)
            }
        )
        if records_content():
            messages = [_message(one) for prompt in prompts for one in as_conversation(prompt)]
            _set_messages(found, "input", messages[-MAX_MESSAGES:])
    return found


def written(found: Span, generations: Sequence[Generation]) -> None:
    """Tell a span what was written."""
    if not found.is_recording:
        return
    n_read = sum(one.n_prompt_tokens for one in generations)
    n_written = sum(one.n_new_tokens for one in generations)
    found.set(
        {
            "gen_ai.response.finish_reasons": [one.finish_reason for one in generations],
            "gen_ai.usage.input_tokens": n_read,
            "gen_ai.usage.output_tokens": n_written,
            "llm.token_count.prompt": n_read,
            "llm.token_count.completion": n_written,
            "llm.token_count.total": n_read + n_written,
        }
    )
    if records_content():
        messages = [
            {**_message({"role": "assistant", "content": one.text}), "finish_reason": reason}
            for one in generations
            for reason in [one.finish_reason]
        ]
        _set_messages(found, "output", messages[-MAX_MESSAGES:])


def _message(message: Message) -> dict[str, Any]:
    """Return a message in the form of the conventions."""
    part = {"type": "text", "content": short(message["content"])}
    return {"role": message["role"], "parts": [part]}


def _set_messages(found: Span, way: str, messages: Sequence[Mapping[str, Any]]) -> None:
    last = messages[-1]["parts"][0]["content"] if messages else ""
    found.set({f"gen_ai.{way}.messages": json.dumps(messages), f"{way}.value": last})
