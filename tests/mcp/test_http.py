"""Streamable HTTP: who may call, and what a page of another host gets."""

import httpx
import pytest
from mcp import Client

from sift_core.mcp.server import http_app
from sift_core.service.settings import ServiceSettings
from tests.mcp.asking import Asked, tools_over
from tests.service.servers import serving

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "search", "arguments": {"question": "Fold a boat?", "n": 1}},
}
pytestmark = pytest.mark.filterwarnings("ignore::sift_core.errors.UndatedWarning")


@pytest.fixture
def open_url(filled):
    settings = ServiceSettings(allowed_hosts=LOOPBACK, max_body_bytes=1 << 20)
    with serving(http_app(tools_over(filled), settings)) as url:
        yield f"{url}/mcp"


def post(url, *, body=None, **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.post(url, json=body or CALL, headers={**HEADERS, **named}, timeout=300)


async def test_the_sdks_client_calls_over_http(open_url):
    async with Client(open_url) as client:
        found = await Asked(client)("search", question="Fold a boat?", n=1)
        assert found["passages"][0]["id"] == "guide.md#0"


def test_a_call_needs_no_session(open_url):
    answer = post(open_url).raise_for_status().json()
    assert "guide.md#0" in answer["result"]["content"][0]["text"]


def test_other_names_and_pages_of_other_hosts_are_refused(open_url):
    assert post(open_url, origin="http://localhost:3000").status_code == 200
    assert post(open_url, host="evil.example").status_code == 421
    for origin in ("http://evil.example", "null", "http://localhost.evil.example"):
        assert post(open_url, origin=origin).status_code == 403


def test_a_request_that_is_too_large_or_no_json_is_refused(open_url):
    body = {**CALL, "params": {"name": "search", "arguments": {"question": "x" * 2_000_000}}}
    refused = post(open_url, body=body)
    assert refused.status_code == 413
    assert "larger than 1,048,576 bytes" in refused.text
    for content in (b"{", b"[]", b"\xff", b'{"jsonrpc": "2.0"}', b"[" * 100_000):
        refused = httpx.post(open_url, content=content, headers=HEADERS, timeout=300)
        assert refused.status_code == 400
        assert "Traceback" not in refused.text


async def test_with_a_key_nobody_calls_without_it(filled):
    settings = ServiceSettings(api_key="secret")
    with serving(http_app(tools_over(filled), settings)) as url:
        assert post(f"{url}/mcp").status_code == 401
        assert post(f"{url}/mcp", authorization="Bearer other").status_code == 401
        key = {"authorization": "Bearer secret"}
        assert post(f"{url}/mcp", host="sift.example", **key).status_code == 200
