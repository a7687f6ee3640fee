"""The tools at a transport: stdio for one agent, or streamable HTTP behind the service's guard."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import CallToolRequestParams, CallToolResult, ListToolsResult

from sift_core.mcp.tools import NOTICE, Tools
from sift_core.service.guard import Guard
from sift_core.service.metrics import Metrics
from sift_core.service.settings import ServiceSettings

if TYPE_CHECKING:
    from starlette.types import ASGIApp


def server_of(tools: Tools) -> Server[Any]:
    """Return the tools as a server of the SDK, for any transport or a client in this process."""

    async def on_list(_: Any, __: Any) -> ListToolsResult:
        return ListToolsResult(tools=tools.listed())

    async def on_call(_: Any, asked: CallToolRequestParams) -> CallToolResult:
        return await tools.call(asked.name, asked.arguments or {})

    number = version("sift-rerank")
    return Server(
        "sift", version=number, instructions=NOTICE, on_list_tools=on_list, on_call_tool=on_call
    )


async def serve_stdio(tools: Tools) -> None:
    """Serve the agent at the other end of stdin and stdout until it leaves."""
    server = server_of(tools)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def http_app(tools: Tools, settings: ServiceSettings) -> ASGIApp:
    """Return an application with the path /mcp, without sessions.

    Args:
        tools: The tools.
        settings: The key, the size of a request, and the names by which it is called. If there are
            names, web pages of other hosts are refused.
    """
    hosts = [one for name in settings.allowed_hosts for one in (name, f"{name}:*")]
    security = TransportSecuritySettings(
        enable_dns_rebinding_protection=bool(hosts),
        allowed_hosts=hosts,
        allowed_origins=[f"http://{one}" for one in hosts],
    )
    app = server_of(tools).streamable_http_app(
        json_response=True, stateless_http=True, transport_security=security
    )
    # The SDK makes a span of each message, which knows the agent's trace.
    return Guard(app, settings=settings, metrics=Metrics(), quiet_paths=("/mcp",))
