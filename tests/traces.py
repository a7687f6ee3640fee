"""What was traced, as a tree of names; one provider of the SDK for all tests of a process."""

from __future__ import annotations

import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from unittest import mock

from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

# A tracer that somebody else took, such as the SDK of MCP, keeps its first provider.
EXPORTER = InMemorySpanExporter()
PROVIDER = TracerProvider()
PROVIDER.add_span_processor(SimpleSpanProcessor(EXPORTER))


@contextmanager
def provided(provider):
    """Let the process have a provider, which the API sets only once."""
    with mock.patch.object(trace, "_TRACER_PROVIDER", provider):
        yield


class Traces:
    """The spans that have ended."""

    @property
    def spans(self):
        return sorted(EXPORTER.get_finished_spans(), key=lambda span: span.start_time)

    @property
    def ids(self):
        return {span.context.trace_id for span in self.spans}

    def named(self, name):
        """Return the one span whose name begins so."""
        (found,) = [span for span in self.spans if span.name.startswith(name)]
        return found

    def texts(self):
        """Return all that was recorded, as one text."""
        return "".join(span.to_json() for span in self.spans)

    def tree(self):
        """Return the names with their stages, each span one level below its parent."""
        known = {span.context.span_id for span in self.spans}
        lines = []

        def walk(parent, depth):
            for span in self.spans:
                above = span.parent.span_id if span.parent else None
                if (above if above in known else None) == parent:
                    stage = span.attributes.get("sift.stage")
                    name = re.sub(r"(random_model)\d+", r"\1", span.name)  # its folder's number
                    lines.append("  " * depth + name + (f" ({stage})" if stage else ""))
                    walk(span.context.span_id, depth + 1)

        walk(None, 0)
        return lines

    def clear(self):
        EXPORTER.clear()


class Collector:
    """A collector of OTLP over HTTP, of the kind that a test can read."""

    def __enter__(self):
        self.requests, collector = [], self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                collector.requests.append(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *args):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}/v1/traces"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error):
        self._server.shutdown()
        self._server.server_close()

    @property
    def spans(self):
        return [
            (scope.scope, one)
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for one in scope.spans
        ]
