"""A small store, a tiny engine over it, a real server on a loopback port, and who asks it."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from contextlib import contextmanager
from dataclasses import replace

import httpx
import numpy as np
import uvicorn

from sift_core import (
    CandidatePool,
    ChoiceOptions,
    InMemorySource,
    Query,
    choose,
    cosine_similarities,
)
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


def chosen_order(embedder, question, n, *, texts=None, **options):
    """Return the positions of the texts in the order in which the library chooses them.

    Args:
        embedder: Makes the vectors of the question and of the texts.
        question: What is asked.
        n: How many are chosen.
        texts: Default: `TEXTS`.
        options: Options of the choice.
    """
    texts = TEXTS if texts is None else texts
    vectors = embedder.embed_documents(texts)
    query = Query(text=question, embedding=embedder.embed_query(question))
    order = np.argsort(-cosine_similarities(query.vector, vectors), kind="stable")
    pool = CandidatePool(
        document_ids=[str(i) for i in range(len(texts))],
        texts=texts,
        embeddings=vectors,
        similarities=cosine_similarities(query.vector, vectors),
        metadata=[{}] * len(texts),
    ).take(order)
    chosen = choose(pool, query, ChoiceOptions(n_select=n, **options))
    return [int(name) for name in chosen.chunks.document_ids]


RERANK = {"query": "boat", "documents": ["a", "b"]}
CHAT = {"model": "tiny:context", "messages": [{"role": "user", "content": "How to fold a boat?"}]}
LONG = {**CHAT, "model": "tiny:fine_tune"}

PATIENCE_S = 300.0  # of whoever asks or waits: all may take long on a busy machine


@contextmanager
def serving(app, **options):
    """Serve an application from another thread, with options of Uvicorn; yield its address.

    Idle connections are kept: one that is dropped may be just what a client asks over next.
    """
    options = {"timeout_keep_alive": 600, **options}
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", ws="none", **options))
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
        thread.join(timeout=PATIENCE_S)
        listener.close()


SETTINGS = ServiceSettings(model_name="tiny", max_new_tokens=256)


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
    from sift_core.answering import AnswerEngine, LanguageModel, LearningOptions

    return AnswerEngine(
        language_model=LanguageModel.from_pretrained(model, device="cpu", dtype="float32"),
        source=source,
        embedder=embedder,
        options=ChoiceOptions(n_select=3, n_candidates=8),
        learning=LearningOptions(n_steps=4),
        generation={"max_new_tokens": 12},
    )


def tiny_app(model):
    """Return a whole service around the model in a folder."""
    embedder = HashingEmbedder(64)
    return create_app(tiny_engine(model, small_store(embedder), embedder), settings=SETTINGS)


@contextmanager
def service(*parts, source=None, embedder=None, selector=None, **settings):
    """Serve with these settings; yield a client of it."""
    chosen = ServiceSettings(model_name="tiny", **settings)
    others = {"source": source, "embedder": embedder, "selector": selector}
    app = create_app(*parts, **others, settings=chosen)
    with serving(app) as url, httpx.Client(base_url=url, timeout=PATIENCE_S) as client:
        yield client


def connection_to(client):
    """Return a bare connection to where a client asks."""
    address = (client.base_url.host, client.base_url.port)
    return socket.create_connection(address, timeout=PATIENCE_S)


@contextmanager
def asked(client, path, body):
    """Ask over a connection that is closed, the answer unread, when the block ends."""
    content = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        f"content-length: {len(content)}\r\n\r\n"
    )
    with connection_to(client) as connection:
        connection.sendall(head.encode() + content)
        yield


class BrokenEmbedder:
    """Fails at every text."""

    name = "broken"

    def embed_query(self, text):
        raise RuntimeError("/home/somebody/secret")

    embed_documents = embed_query


def figures(client):
    """Return the figures by name with labels."""
    lines = client.get("/metrics").raise_for_status().text.splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


def until(condition, seconds=PATIENCE_S):
    """Wait until something holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def dawdles(ids, _, **__):
    """Have a text that gets long take minutes, so that it can be met while it is being written."""
    if ids.shape[1] > 200:
        time.sleep(0.2)
    return ids.new_zeros(len(ids), dtype=bool)


@contextmanager
def opened_tiny(settings, *, model):
    """Yield the tiny service, whose texts never end early and dawdle; /pid names its process."""
    settings = replace(settings, model_name="tiny", max_new_tokens=900)
    embedder = HashingEmbedder(64)
    engine = tiny_engine(model, small_store(embedder), embedder)
    endless = {"eos_token_id": None, "repetition_penalty": 1.0}  # nor when they go in circles
    generation = {**endless, "stopping_criteria": [dawdles]}
    app = create_app(replace(engine, generation=generation), settings=settings)

    @app.get("/pid")
    async def pid():
        return os.getpid()

    yield app
