"""The span of a request to the service, as a part of its caller's trace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sift_core.tracing import NO_SPAN, Attributes, Span, span

try:  # imported before any request, since a caller's trace is passed on without an SDK too
    from opentelemetry import context, trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError:
    _HAS_API = False
else:
    _HAS_API = True

if TYPE_CHECKING:
    from starlette.types import Scope

_METHODS = {"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT"}
_LONGEST = {"traceparent": 128, "tracestate": 512}  # characters; W3C asks for 512 of the latter


@contextmanager
def request_span(scope: Scope, *, is_quiet: bool) -> Iterator[Span]:
    """Give the span of a request, current in the block and a child of the caller's `traceparent`.

    A header that W3C would not write is ignored. Without a tracer provider, and for what is quiet,
    there is no span, and the caller's is current: servers that are asked here continue its trace.
    Inside the span of another instrumentation, such as FastAPI's, there is no second one.

    Args:
        scope: Of the request.
        is_quiet: Whether a span is noise, as of requests for health and metrics.
    """
    if not _HAS_API or trace.get_current_span().get_span_context().is_valid:
        yield NO_SPAN
        return
    caller = TraceContextTextMapPropagator().extract(_trace_headers(scope), context.get_current())
    found = NO_SPAN if is_quiet else span(_method(scope), _about(scope), "SERVER", parent=caller)
    if found is not NO_SPAN:
        with found:
            yield found
        return
    token = context.attach(caller)
    try:
        yield NO_SPAN
    finally:
        context.detach(token)


def record_response(
    found: Span, scope: Scope, status: int, route: str | None, *, is_complete: bool
) -> None:
    """Tell the span of a request how it was answered.

    Args:
        found: The span.
        scope: Of the request.
        status: HTTP's, or 0 if nothing was sent.
        route: The template of the path, such as "/v1/rerank"; None if none fits.
        is_complete: Whether the whole answer was sent. If not, the span is marked as cancelled.
    """
    if not found.is_recording:
        return
    if route is not None:  # never the path, of which clients make up any number
        found.rename(f"{_method(scope)} {route}")
        found.set({"http.route": route})
    if status:
        found.set({"http.response.status_code": status})
    if not is_complete:
        found.set({"sift.is_cancelled": True})
    if status >= 500:
        found.fail(str(status))


def _method(scope: Scope) -> str:
    method: str = scope["method"]
    return method if method in _METHODS else "HTTP"


def _about(scope: Scope) -> Attributes:
    """Return what is known of a request when it begins; a query may hold texts and is left out."""
    method = _method(scope)
    about: dict[str, Any] = {
        "http.request.method": "_OTHER" if method == "HTTP" else method,
        "url.path": scope["path"][:200],
        "url.scheme": scope.get("scheme", "http"),
    }
    if server := scope.get("server"):
        about["server.address"] = server[0]
        if server[1] is not None:
            about["server.port"] = server[1]
    return about


def _trace_headers(scope: Scope) -> dict[str, str]:
    """Return the headers of a trace; none if there are two parents, or one is too long."""
    found: dict[str, str] = {}
    for name, most in _LONGEST.items():
        values = [value for key, value in scope["headers"] if key == name.encode()]
        text = b",".join(values).decode("latin-1")
        if len(text) <= most and (name == "tracestate" or len(values) == 1):
            found[name] = text
    return found
