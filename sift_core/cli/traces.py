"""Traces of the commands that serve, sent where the environment says, as other programs do."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sift_core.installing import install_command

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
EXPORTER = "OTEL_TRACES_EXPORTER"
LAST_S = 2.0  # that a collector has for the last spans when the process ends


@contextmanager
def sent_traces() -> Iterator[None]:
    """Send spans by OTLP over HTTP for the block if the environment names a collector.

    The variables are OpenTelemetry's own. The service is called "sift" unless OTEL_SERVICE_NAME
    or OTEL_RESOURCE_ATTRIBUTES says otherwise. A provider that is there already, as of
    `opentelemetry-instrument`, stays. A missing package or a malformed variable is logged as a
    warning, since a platform may set the variables for everyone.
    """
    provider = None
    if os.environ.get(EXPORTER) != "none" and any(map(os.environ.get, ENDPOINTS)):
        try:
            provider = _provider()
        except (ImportError, ValueError) as error:
            logging.getLogger(__name__).warning(
                "no traces are sent: %s; %s, or unset %s",
                error,
                install_command("otel")
                if isinstance(error, ImportError)
                else "correct the variables OTEL_*",
                " and ".join(ENDPOINTS),
            )
    try:
        yield
    finally:
        if provider is not None:  # sends what waits; the SDK's own limit is 30 s
            sending = threading.Thread(target=provider.shutdown, daemon=True)
            sending.start()
            sending.join(LAST_S)


def _provider() -> TracerProvider | None:
    """Set the provider of the process and return it; None if the application has set one.

    Raises:
        ImportError: If the SDK or its exporter is not installed.
        ValueError: If a variable is malformed.
    """
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return None
    is_named = SERVICE_NAME in OTELResourceDetector().detect().attributes
    resource = Resource.create({} if is_named else {SERVICE_NAME: "sift"})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return provider
