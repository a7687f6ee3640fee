"""A pydantic-ai agent that looks things up by `sift mcp`, and replies with its sources.

    .venv/bin/python examples/pydantic_ai_agent.py

The question needs two facts. The two nearest pages are two years of one rule. The agent's search
returns one of them and the page about parcels, each with its source and the reason.
No model that calls tools fits in here, so a function plays it: it calls `search` with the
question, and puts what it reads into the reply.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from fastmcp.client.transports import StdioTransport
from pydantic import BaseModel
from pydantic_ai import Agent, ModelMessage, ModelResponse, ToolCallPart, ToolReturnPart
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.function import AgentInfo, FunctionModel

SIFT = [sys.executable, "-m", "sift_core.cli"]  # `sift`, if it is on your PATH
QUESTION = "How long can I return shoes, and who pays for the parcel?"
PAGES = {
    "returns-2024.md": "Shoes can be returned within 30 days.",
    "returns-2025.md": "Shoes can be returned within 30 days of delivery.",
    "returns-2026.md": "You can return shoes within 30 days of delivery.",
    "parcels.md": "The customer pays for the parcel of a return. We pay for an exchange.",
    "laces.md": "Laces are free with every pair of shoes.",
    "bonn.md": "The shop in Bonn is open from 9 to 18.",
}


class Reply(BaseModel):
    """What the agent returns."""

    text: str
    sources: list[str]


def scripted(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Play a model: search for the user's words, then reply with the passages."""
    last = messages[-1].parts[-1]
    if not isinstance(last, ToolReturnPart):
        return ModelResponse(parts=[ToolCallPart("search", {"question": QUESTION, "n": 2})])
    passages: list[dict[str, Any]] = last.model_response_object()["passages"]
    for one in passages:
        print(f"  {one['text']}\n    {one['source']}: {one['why']}")
    reply = {
        "text": " ".join(one["text"] for one in passages),
        "sources": [one["source"] for one in passages],
    }
    return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, reply)])


MODEL = FunctionModel(scripted)  # your model goes here, for example "openai:gpt-5"


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        pages = Path(folder, "pages")
        pages.mkdir()
        for name, text in PAGES.items():
            (pages / name).write_text(text, encoding="utf-8")
        run("index", "pages", cwd=folder)
        compared = json.loads(run("search", QUESTION, "-n", "2", "--compare", "--json", cwd=folder))
        print(f"{QUESTION}\n\nnearest neighbours")
        for chunk in compared["columns"]["nearest"]["chunks"]:
            print(f"  {chunk['text']}")

        print("\nthe agent's search")
        server = StdioTransport(SIFT[0], [*SIFT[1:], "mcp"], cwd=folder, env={**os.environ})
        tools = MCPToolset(server, init_timeout=120)
        agent = Agent(MODEL, toolsets=[tools], output_type=Reply)
        reply = (await agent.run(QUESTION)).output
        print(f"\nreply: {reply.text}\nsources: {', '.join(reply.sources)}")


def run(*arguments: str, cwd: str) -> str:
    """Run `sift` in a folder and return what it prints."""
    command = [*SIFT, *arguments]
    return subprocess.run(command, cwd=cwd, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    asyncio.run(main())
