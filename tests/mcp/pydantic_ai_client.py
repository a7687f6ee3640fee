"""A session of a pydantic-ai agent, in an environment of its own: one JSON line an answer.

A function plays the model: it calls the tools one after another.
"""

import asyncio
import json
import os
import sys

from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.function import FunctionModel

CALLS = json.loads(sys.argv[1])


def model(messages, info):
    names = sorted(tool.name for tool in info.function_tools)
    calls = [call for call in CALLS if call[0] in names]
    n_done = sum(isinstance(message, ModelResponse) for message in messages)
    if not n_done:
        print(json.dumps(names))
    if n_done < len(calls):
        return ModelResponse(parts=[ToolCallPart(*calls[n_done])])
    return ModelResponse(parts=[TextPart("done")])


async def main(kind, *where):
    client = where[0]
    if kind == "stdio":
        client = StdioTransport(where[0], list(where[1:]), env=dict(os.environ))
    agent = Agent(FunctionModel(model), toolsets=[MCPToolset(client, init_timeout=120)])
    result = await agent.run("Call the tools.")
    for message in result.all_messages():
        for part in message.parts:
            if part.part_kind in ("tool-return", "retry-prompt"):
                text = part.content
                print(json.dumps(text if isinstance(text, str) else json.dumps(text)))


asyncio.run(main(*sys.argv[2:]))
