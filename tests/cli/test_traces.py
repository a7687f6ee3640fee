"""The commands that serve send their traces where the environment says."""

from __future__ import annotations

import json
import logging
import signal
import sys
import urllib.request

import pytest

pytest.importorskip("opentelemetry.sdk", reason="needs the extra otel")

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.util._once import Once

from sift_core import Document
from sift_core.cli.traces import sent_traces
from sift_core.installing import install_command
from tests.cli.test_serve import a_whole_service, request_to
from tests.traces import Collector, provided


@pytest.fixture(autouse=True)
def no_collector(monkeypatch):
    for name in ("ENDPOINT", "TRACES_ENDPOINT"):
        monkeypatch.delenv(f"OTEL_EXPORTER_OTLP_{name}", raising=False)
    for name in ("TRACES_EXPORTER", "SERVICE_NAME", "RESOURCE_ATTRIBUTES"):
        monkeypatch.delenv(f"OTEL_{name}", raising=False)


def test_nothing_is_sent_unless_there_is_an_address(monkeypatch):
    with provided(None):
        with sent_traces():
            pass
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
        monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
        with sent_traces():
            assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def test_a_provider_that_is_there_stays(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    there = TracerProvider()
    with provided(there):
        with sent_traces():
            assert trace.get_tracer_provider() is there


def test_a_missing_package_is_named_and_nothing_else_fails(monkeypatch, caplog):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace.export", None)
    with provided(None), caplog.at_level(logging.WARNING):
        with sent_traces():
            pass
    (told,) = caplog.messages
    assert install_command("otel") in told


def test_a_malformed_variable_is_named_and_nothing_else_fails(monkeypatch, caplog):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "-1")
    with provided(None), caplog.at_level(logging.WARNING):
        with sent_traces():
            pass
    (told,) = caplog.messages
    assert "max_queue_size" in told
    assert "OTEL_" in told


@pytest.mark.parametrize(
    ("variable", "value", "name"),
    [
        (None, None, "sift"),
        ("OTEL_SERVICE_NAME", "ours", "ours"),
        ("OTEL_RESOURCE_ATTRIBUTES", "service.name=ours,team=a", "ours"),
    ],
)
def test_the_service_has_the_name_that_the_environment_gives_it(monkeypatch, variable, value, name):
    if variable:
        monkeypatch.setenv(variable, value)
    with Collector() as collector, provided(None):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", collector.address)
        monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", Once())
        with sent_traces():
            trace.get_tracer("test").start_span("one").end()
    resource = collector.requests[0].resource_spans[0].resource
    assert {one.key: one.value.string_value for one in resource.attributes}["service.name"] == name


@pytest.mark.slow
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_service_sends_its_traces_to_a_collector(fill, elsewhere, stop):
    fill("faiss:.sift", [Document(document_id="a", text="Fold a boat.")])
    with Collector() as collector:
        address = collector.address.removesuffix("/v1/traces")
        settings = {"OTEL_EXPORTER_OTLP_ENDPOINT": address}
        with a_whole_service(elsewhere, "--no-model", stop=stop, **settings) as url:
            with urllib.request.urlopen(request_to(f"{url}/search", {"query": "boat?"})) as answer:
                assert json.load(answer)["candidates"]
    names = [one.name for _, one in collector.spans]
    assert "POST /search" in names
    assert "invoke_workflow sift.search" in names
    resource = collector.requests[0].resource_spans[0].resource
    about = {one.key: one.value.string_value for one in resource.attributes}
    assert about["service.name"] == "sift"
