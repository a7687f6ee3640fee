"""What was traced, as a tree of names; one provider of the SDK for all tests of a process."""

from __future__ import annotations

from contextlib import contextmanager
from unittest import mock

from opentelemetry import trace
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
                    lines.append("  " * depth + span.name + (f" ({stage})" if stage else ""))
                    walk(span.context.span_id, depth + 1)

        walk(None, 0)
        return lines

    def clear(self):
        EXPORTER.clear()
