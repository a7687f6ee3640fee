"""A tool's call is a part of the agent's trace, by `_meta` in this process and over HTTP."""

import pytest

pytest.importorskip("opentelemetry.sdk", reason="needs the extra otel")

from mcp import Client

from sift_core.mcp.server import http_app
from sift_core.service.settings import ServiceSettings
from sift_core.tracing import span
from tests.mcp.asking import asking, tools_over
from tests.service.servers import serving, until

pytestmark = pytest.mark.filterwarnings("ignore::sift_core.errors.UndatedWarning")


def check(traces, call):
    """Check that a search of the tool is below its call, in the trace of the agent."""
    until(lambda: any(one.name == "agent" for one in traces.spans))
    tree = traces.tree()
    tree = tree[tree.index("agent") :]  # the client may have sent more before
    at = next(i for i, name in enumerate(tree) if name.strip() == call)
    level = len(tree[at]) - len(tree[at].lstrip())
    assert level > 0
    assert all(name.startswith(" ") for name in tree[1 : at + 1])
    below = [name[level:] for name in tree[at + 1 :]]
    assert below[:2] == ["  embeddings hashing-64 (embed)", "  invoke_workflow sift.search"]
    assert not any(name.startswith("POST") for name in tree)


async def test_a_call_continues_the_trace_of_an_agent(traces, filled):
    async with asking(filled) as asked:
        traces.clear()
        with span("agent", {}):
            await asked("search", question="Fold a boat?", n=1)
    check(traces, "tools/call search")


async def test_so_it_does_over_http(traces, filled):
    settings = ServiceSettings(allowed_hosts=("127.0.0.1",))
    with serving(http_app(tools_over(filled), settings)) as url:
        async with Client(f"{url}/mcp") as client:
            traces.clear()
            with span("agent", {}):
                await client.call_tool("search", {"question": "Fold a boat?", "n": 1})
        check(traces, "tools/call search")


async def test_a_tool_that_refuses_is_an_error_without_words(traces, filled):
    async with asking(filled) as asked:
        traces.clear()
        await asked.refusal("search", question="Fold a boat?", n=-1)
        until(lambda: any("tools/call" in one.name for one in traces.spans))
    assert any(one.attributes.get("error.type") == "tool_error" for one in traces.spans)
    assert "boat" not in traces.texts()
