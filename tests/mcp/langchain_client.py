"""A session of langchain-mcp-adapters, in an environment of its own: one JSON line an answer."""

import asyncio
import json
import os
import sys

from langchain_mcp_adapters.client import MultiServerMCPClient

CALLS = json.loads(sys.argv[1])


async def main(kind, *where):
    connection = {"transport": "streamable_http", "url": where[0]}
    if kind == "stdio":
        command, *arguments = where
        connection = {"transport": "stdio", "command": command, "args": arguments}
        connection["env"] = dict(os.environ)
    client = MultiServerMCPClient({"sift": connection})
    tools = {tool.name: tool for tool in await client.get_tools()}
    print(json.dumps(sorted(tools)))
    for name, arguments in CALLS:
        if name in tools:
            try:
                content = await tools[name].ainvoke(arguments)
                text = content if isinstance(content, str) else content[0]["text"]
            except Exception as error:  # older adapters raise what newer ones return
                text = str(error)
            print(json.dumps(text))


asyncio.run(main(*sys.argv[2:]))
