"""A small store, a tiny engine over it, and a real server on a loopback port."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import contextmanager

import uvicorn

from sift_core import InMemorySource
from sift_core.service import ServiceSettings, create_app
from sift_core.testing import HashingEmbedder

TEXTS = [
    "to fold a paper boat, fold the sheet in half",
    "to fold a paper boat, fold the sheet in half!",  # a copy
    "a paper boat floats until the paper is wet",
    "boats of paper are painted with wax to stay dry",
    "water for green tea must not boil",
    "black tea takes four minutes in boiling water",
    "the river has cold water",
    "many leaves fall from a tree in the wind",
]


@contextmanager
def serving(app):
    """Serve an application from another thread; yield its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    try:
        yield address
    finally:
        server.should_exit = True
        thread.join(timeout=30)
        listener.close()


SETTINGS = ServiceSettings(model_name="tiny", keep_alive_s=0.02, max_new_tokens=256)


def small_store(embedder):
    """Return a store of the texts."""
    return InMemorySource(
        embedder.embed_documents(TEXTS),
        TEXTS,
        document_ids=[f"doc-{i}" for i in range(len(TEXTS))],
        metadata=[
            {"source": f"guide/{i}.md", "topic": "tea" if i in (4, 5) else "boats"}
            for i in range(len(TEXTS))
        ],
        embedder_name=embedder.name,
    )


def tiny_engine(model, source, embedder):
    """Return an engine around the model in a folder, which learns in a moment."""
    from sift_core.answering import AnswerEngine, LanguageModel

    return AnswerEngine(
        language_model=LanguageModel.from_pretrained(model, device="cpu"),
        source=source,
        embedder=embedder,
        n_candidates=8,
        n_context=3,
        n_steps=4,
        max_new_tokens=12,
    )


def tiny_app(model):
    """Return a whole service around the model in a folder."""
    embedder = HashingEmbedder(64)
    return create_app(tiny_engine(model, small_store(embedder), embedder), settings=SETTINGS)
