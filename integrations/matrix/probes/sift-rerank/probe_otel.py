"""A choice records a span."""

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

memory, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(memory))
trace.set_tracer_provider(provider)

from sift_core import InMemorySource, Query, search  # noqa: E402  # after a provider is set
from sift_core.testing import HashingEmbedder  # noqa: E402

embedder = HashingEmbedder()
source = InMemorySource(embedder.embed_documents(["tea", "boats"]), ["tea", "boats"])
search(source, Query(text="tea", embedding=embedder.embed_query("tea")))
assert memory.get_finished_spans()
assert OTLPSpanExporter
