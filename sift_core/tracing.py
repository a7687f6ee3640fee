"""Spans of OpenTelemetry, where an application records them; nothing otherwise.

A span costs 2 µs as long as no tracer provider is set, and nothing is imported for it: only a
process that has imported OpenTelemetry can have set one. Texts are recorded only if the
environment variable of `CONTENT_VARIABLE` says so, and each is cut.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import iscoroutinefunction
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeAlias, TypeVar, cast

from sift_core.progress import Cancelled

if TYPE_CHECKING:
    from opentelemetry import trace
    from opentelemetry.context import Context

P = ParamSpec("P")
R = TypeVar("R")
Attributes: TypeAlias = Mapping[str, str | bool | int | float | Sequence[str]]
Kind: TypeAlias = Literal["INTERNAL", "CLIENT", "SERVER"]

CONTENT_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_WITH_CONTENT = {"true", "1", "span_only", "span_and_event"}
MAX_TEXT = 2000  # characters of a recorded text
STAGE, KIND = "sift.stage", "openinference.span.kind"
_API = "opentelemetry.trace"
_tracers: list[tuple[object, trace.Tracer]] = []  # at most one, of the provider that it names


class Span:
    """A span that nobody records. As a context manager it makes itself current for its block."""

    is_recording = False
    """Whether attributes are wanted. Compute none that cost time otherwise."""

    def __enter__(self) -> Span:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        return None

    def set(self, attributes: Attributes) -> None:
        """Set attributes."""

    def rename(self, name: str) -> None:
        """Give the span another name."""

    def fail(self, error_type: str, message: str = "") -> None:
        """Give the span the status of an error."""

    def current(self) -> Span:
        """Return a context manager that makes the span current and does not end it."""
        return self

    def end(self, error: BaseException | None = None) -> None:
        """End the span, which may happen more than once, with what went wrong."""


NO_SPAN = Span()


class _Started(Span):
    """A span that the provider of an application has started."""

    def __init__(self, span: trace.Span) -> None:
        self._span = span
        self.is_recording = span.is_recording()

    def __enter__(self) -> Span:
        from opentelemetry import context, trace

        self._token = context.attach(trace.set_span_in_context(self._span))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        from opentelemetry import context

        context.detach(self._token)
        self.end(error)

    def set(self, attributes: Attributes) -> None:
        if self._span.is_recording():
            self._span.set_attributes({name: _plain(one) for name, one in attributes.items()})

    def rename(self, name: str) -> None:
        self._span.update_name(name)

    def fail(self, error_type: str, message: str = "") -> None:
        from opentelemetry.trace import StatusCode

        self._span.set_attribute("error.type", error_type)
        self._span.set_status(StatusCode.ERROR, message or None)

    def current(self) -> Span:
        return _Current(self._span)

    def end(self, error: BaseException | None = None) -> None:
        if not self._span.is_recording():  # it is not recorded, or has ended
            return
        if isinstance(error, Exception) and not isinstance(error, Cancelled):
            # Messages of errors quote questions and texts.
            self.fail(type(error).__qualname__, short(str(error)) if records_content() else "")
            if records_content():
                self._span.record_exception(error)
        elif error is not None:
            self._span.set_attribute("sift.is_cancelled", True)
        self._span.end()


class _Current(_Started):
    """The same span, which lives on after the block."""

    def end(self, error: BaseException | None = None) -> None:
        return None


def span(
    name: str, attributes: Attributes, kind: Kind = "INTERNAL", *, parent: Context | None = None
) -> Span:
    """Return a span that has started, to be used as a context manager or ended by `end`.

    Args:
        name: Its name, one of few.
        attributes: What is known at its start, which samplers see.
        kind: Whether it is the caller's or the called side of a request. Default: neither.
        parent: Context of its parent. Default: the current span.
    """
    tracer = _tracer()
    if tracer is None:
        return NO_SPAN
    from opentelemetry.trace import SpanKind

    plain = {name: _plain(one) for name, one in attributes.items()}
    return _Started(tracer.start_span(name, parent, SpanKind[kind], plain))


def traced(
    start: Callable[..., Span], record: Callable[[Span, Any], object]
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that runs each call, of a coroutine function too, in a span.

    Args:
        start: Starts the span, from the arguments of the call.
        record: Called with a span that is recorded and with what the call returned.
    """

    def decorate(call: Callable[P, R]) -> Callable[P, R]:
        @wraps(call)
        def run(*args: P.args, **options: P.kwargs) -> R:
            with start(*args, **options) as one:
                result = call(*args, **options)
                if one.is_recording:
                    record(one, result)
            return result

        @wraps(call)
        async def arun(*args: P.args, **options: P.kwargs) -> Any:
            with start(*args, **options) as one:
                result = await cast("Any", call(*args, **options))
                if one.is_recording:
                    record(one, result)
            return result

        return cast("Callable[P, R]", arun) if iscoroutinefunction(call) else run

    return decorate


def carried(call: Callable[P, R]) -> Callable[P, R]:
    """Return a function that another thread may call, with what is the current span here.

    No other context variable is carried: an adapter, for one, is of its own flow of control.
    """
    if _API not in sys.modules:
        return call
    from opentelemetry import context

    here = context.get_current()
    if not here:
        return call

    @wraps(call)
    def run(*args: P.args, **options: P.kwargs) -> R:
        token = context.attach(here)
        try:
            return call(*args, **options)
        finally:
            context.detach(token)

    return run


def trace_headers() -> dict[str, str]:
    """Return the W3C headers that make a server's spans children of the current one, or none."""
    headers: dict[str, str] = {}
    if _API in sys.modules:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        TraceContextTextMapPropagator().inject(headers)
    return headers


def records_content() -> bool:
    """Return whether texts may be recorded: questions, chunks, answers, messages of errors."""
    return os.environ.get(CONTENT_VARIABLE, "").strip().lower() in _WITH_CONTENT


def short(text: str) -> str:
    """Return a text of at most `MAX_TEXT` characters."""
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"


def _plain(value: Any) -> Any:
    """Return a value with U+FFFD for half a surrogate pair, which would lose a whole export."""
    if isinstance(value, str):
        if value.isascii():
            return value
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return list(map(_plain, value)) if isinstance(value, list | tuple) else value


def _tracer() -> trace.Tracer | None:
    """Return the tracer of the application's provider; None if it has set none."""
    if _API not in sys.modules:
        return None
    from opentelemetry import trace

    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider):
        return None
    if not _tracers or _tracers[0][0] is not provider:
        from importlib.metadata import version

        _tracers[:] = [(provider, provider.get_tracer("sift_core", version("sift-rerank")))]
    return _tracers[0][1]
