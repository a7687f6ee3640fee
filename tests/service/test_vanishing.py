"""What becomes of the work for clients that have gone: the next stage does not begin."""

import asyncio
import threading
import time
from dataclasses import dataclass, field, replace

import pytest

from sift_core import ContextSelector, InMemorySource
from sift_core.service.state import WorkQueue
from sift_core.testing import HashingEmbedder
from tests.engines import changed
from tests.service.servers import CHAT, LONG, PATIENCE_S, TEXTS, asked, figures, service, until


class Gate:
    """Where a stage waits once it has begun, if it is shut."""

    def __init__(self):
        self.n_begun, self.begun, self.opened = 0, threading.Event(), threading.Event()

    def passed(self):
        self.n_begun += 1
        self.begun.set()
        assert self.opened.wait(PATIENCE_S)


class GatedSource(InMemorySource):
    gate = None

    def fetch_batch(self, *query, **options):
        self.gate.passed()
        return super().fetch_batch(*query, **options)

    def look_up(self, *lookups, **options):
        self.gate.passed()
        return super().look_up(*lookups, **options)


class GatedEmbedder(HashingEmbedder):
    gate = None

    def embed_documents(self, texts):
        if self.gate is not None:
            self.gate.passed()
        return super().embed_documents(texts)


@dataclass(frozen=True, kw_only=True)
class GatedSelector(ContextSelector):
    gate: Gate = field(default_factory=Gate, compare=False)

    def select(self, *vectors, **options):
        self.gate.passed()
        return super().select(*vectors, **options)


def knows_it(client):
    """Return whether the service knows that a client has gone."""
    found = figures(client)
    is_cut = any("sift_requests_total" in name and "499" in name for name in found)
    return is_cut or found["sift_clients_gone_total"] > 0


CASES = {
    "search": ("/search", {"query": "boat", "compare": True}),
    "chat": ("/v1/chat/completions", CHAT),
    "stream": ("/v1/chat/completions", {**LONG, "stream": True}),
}


@pytest.mark.parametrize(("path", "body"), CASES.values(), ids=CASES)
def test_who_goes_while_documents_are_fetched_has_none_chosen(engine, embedder, path, body):
    texts = TEXTS[1:]  # of which none repeats another: each question has one choice
    source = GatedSource(embedder.embed_documents(texts), texts, embedder_name=embedder.name)
    source.gate = Gate()
    selector = GatedSelector()
    selector.gate.opened.set()
    options = replace(engine.options, selector=selector)
    gated = changed(engine, source=source, options=options, selector=selector)
    with service(gated) as client:
        with asked(client, path, body):
            assert source.gate.begun.wait(PATIENCE_S)
        until(lambda: knows_it(client))
        source.gate.opened.set()
        assert client.post("/search", json={"query": "tea"}).status_code == 200
        time.sleep(0.2)
        assert selector.gate.n_begun == 1  # for the second who asked


@pytest.mark.parametrize("is_streamed", [False, True])
def test_who_goes_while_documents_are_chosen_has_none_learned(engine, is_streamed):
    selector = GatedSelector()
    gated = changed(engine, selector=selector, cache=None)
    with service(gated) as client:
        with asked(client, "/v1/chat/completions", {**LONG, "stream": is_streamed}):
            assert selector.gate.begun.wait(PATIENCE_S)
        until(lambda: knows_it(client))
        selector.gate.opened.set()
        assert client.post("/v1/chat/completions", json=CHAT).status_code == 200
        time.sleep(0.2)
        assert figures(client)["sift_learning_steps_total"] == 0


@pytest.mark.parametrize("path", ["/rerank", "/v1/embeddings"])
def test_who_goes_while_texts_are_embedded_has_no_more_embedded_or_chosen(path):
    embedder, selector = GatedEmbedder(16), GatedSelector()
    embedder.gate = Gate()
    selector.gate.opened.set()
    texts = [f"text {i}" for i in range(640)]  # ten batches
    bodies = {
        "/rerank": {"query": "boat", "documents": texts},
        "/v1/embeddings": {"model": embedder.name, "input": texts},
    }
    with service(embedder=embedder, selector=selector) as client:
        with asked(client, path, bodies[path]):
            assert embedder.gate.begun.wait(PATIENCE_S)
        # None is told as long as the thread works. The end of a connection comes before what
        # another sends after it, so that the service knows after a few of its answers.
        for _ in range(5):
            figures(client)
        embedder.gate.opened.set()
        until(lambda: figures(client)['sift_queue_running{queue="rankings"}'] == 0)
        assert embedder.gate.n_begun == 1
        assert selector.gate.n_begun == 0


def test_who_goes_as_the_turn_comes_takes_none():
    async def is_cancelled():
        queue = WorkQueue(1, 1)
        async with queue.turn():
            task = asyncio.create_task(queue.turn(PATIENCE_S).__aenter__())
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled() and queue.n_running == 0

    assert asyncio.run(is_cancelled())
