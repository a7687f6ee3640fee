"""Traces of the commands that serve, sent where the environment says, as other programs do."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
NAME, EXPORTER = "OTEL_SERVICE_NAME", "OTEL_TRACES_EXPORTER"


@contextmanager
def sent_traces() -> Iterator[None]:
    """Send spans by OTLP over HTTP for the block if the environment names a collector.

    The variables are OpenTelemetry's own. The service is called "sift" unless OTEL_SERVICE_NAME
    says otherwise. A provider that is there already, as of `opentelemetry-instrument`, stays. A
    missing package is logged as a warning, since a platform may set the variables for everyone.
    """
    if os.environ.get(EXPORTER) == "none" or not any(map(os.environ.get, ENDPOINTS)):
        yield
        return
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        logging.getLogger(__name__).warning(
            "no traces are sent: %s; install sift-rerank[otel], or unset %s",
            error,
            " and ".join(ENDPOINTS),
        )
        yield
        return
    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        yield
        return
    os.environ.setdefault(NAME, "sift")
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    try:
        yield
    finally:
        provider.shutdown()  # sends what waits, for some seconds at most
