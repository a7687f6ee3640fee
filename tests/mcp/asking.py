"""Tools over small stores of every kind, asked by the SDK's own client in this process."""

import json
from contextlib import asynccontextmanager, contextmanager

from mcp import Client

from sift_core import ChoiceOptions, Document
from sift_core.cli.mcp import DESCRIPTIONS
from sift_core.cli.store_addresses import StoreAddress
from sift_core.cli.stores import open_for_writing, open_store
from sift_core.documents import index_documents
from sift_core.mcp.collections import Collection
from sift_core.mcp.server import http_app, server_of
from sift_core.mcp.tools import Tools
from sift_core.service.settings import ServiceSettings
from sift_core.testing import HashingEmbedder
from tests.service.servers import serving

EMBEDDER = HashingEmbedder(64)
GUIDE = [
    "To fold a paper boat, fold the sheet in half.",
    "Press the folds of the boat with a ruler.",
    "Paint the boat with wax, so that the paper stays dry.",
    "A boat of paper floats for an hour.",
]


def documents():
    """A guide of four passages with places, and a note on tea without one."""
    starts = [sum(len(text) + 1 for text in GUIDE[:i]) for i in range(len(GUIDE))]
    boats = [
        Document(
            document_id=f"guide.md#{i}",
            text=text,
            metadata={"source": "guide.md", "heading": ["Boats"], "start": start, "topic": "boats"},
        )
        for i, (text, start) in enumerate(zip(GUIDE, starts, strict=True))
    ]
    tea = {"topic": "tea", "date": "2026-01-05"}
    return [*boats, Document(document_id="tea", text="Green tea must not boil.", metadata=tea)]


@contextmanager
def opened(address, filled=()):
    """Open a store as a collection; it is begun where it is not there."""
    where = StoreAddress.parse(address)
    with open_for_writing(where, embedder_name=EMBEDDER.name, dimension=64) as begun:
        begun.source.prepare(embedder_name=EMBEDDER.name, dimension=64)
        begun.source.complete()
        if filled:
            index_documents(begun.source, filled, EMBEDDER, progress=False)
    with open_store(where) as source:
        folder = where.location if where.kind == "faiss" else None
        yield Collection(where.collection, source, EMBEDDER, folder=folder)


def tools_over(*collections, options=None, **settings):
    options = ChoiceOptions(newest="date") if options is None else options
    return Tools(collections, DESCRIPTIONS, options, **settings)


class Asked:
    """The SDK's client: `await asked("search", question="…")` returns what the tool answers."""

    def __init__(self, client):
        self.client = client

    async def __call__(self, name, **arguments):
        result = await self.client.call_tool(name, arguments)
        assert not result.is_error, result.content[0].text
        answer = json.loads(result.content[0].text)
        assert answer == result.structured_content
        return answer

    async def refusal(self, name, **arguments):
        """Return the words of an error, which are never many and no traceback."""
        result = await self.client.call_tool(name, arguments)
        assert result.is_error
        (content,) = result.content
        assert "Traceback" not in content.text
        assert len(content.text) < 1000
        return content.text


@asynccontextmanager
async def asking(*collections, **settings):
    """Yield an `Asked` of tools over collections."""
    async with Client(server_of(tools_over(*collections, **settings))) as client:
        yield Asked(client)


@contextmanager
def served_memory(folder):
    """Serve an empty memory over HTTP, from another thread; yield its address."""
    with opened(f"faiss:{folder / 'memory'}") as collection:
        settings = ServiceSettings(allowed_hosts=("127.0.0.1",))
        with serving(http_app(tools_over(collection, may_write=True), settings)) as url:
            yield f"{url}/mcp"
