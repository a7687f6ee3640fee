"""Traces of the commands that serve, sent where the environment says, as other programs do."""

from __future__ import annotations

import logging
import os

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
NAME, EXPORTER = "OTEL_SERVICE_NAME", "OTEL_TRACES_EXPORTER"


def send_traces() -> None:
    """Send spans by OTLP over HTTP if the environment names a collector.

    The variables are OpenTelemetry's own. The service is called "sift" unless OTEL_SERVICE_NAME
    says otherwise. A provider that is there already, as of `opentelemetry-instrument`, stays. A
    missing package is logged as a warning, since a platform may set the variables for everyone.
    """
    if os.environ.get(EXPORTER) == "none" or not any(map(os.environ.get, ENDPOINTS)):
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
        return
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        os.environ.setdefault(NAME, "sift")
        provider = TracerProvider()
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        trace.set_tracer_provider(provider)
