"""Many threads and tasks at once on one source: every answer is its own query's."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import httpx
import pytest

from sift_core.sources import QdrantSource

qdrant_client = pytest.importorskip("qdrant_client")

N_THREADS, N_CALLS, N_TASKS = 32, 128, 200
LIMIT_S = 300  # of a whole test: what takes longer hangs
PATIENT = {"timeout": 300, "check_compatibility": False}


def asked(corpus, i):
    """Return the arguments of the i-th call: query, number of candidates."""
    return corpus.query(i), 3 + i % 8


def told(pool):
    """Return a pool as a value that can be compared."""
    return (
        pool.document_ids,
        pool.texts,
        tuple(map(repr, pool.metadata)),
        pool.embeddings.round(5).tobytes(),
        pool.similarities.round(5).tobytes(),
    )


def test_32_threads_are_answered_as_one_is(concurrent_store, corpus):
    together = threading.Barrier(N_THREADS)

    def fetch(i):
        if i < N_THREADS:  # the first call of each thread
            together.wait(LIMIT_S)
        return told(concurrent_store.source.fetch(*asked(corpus, i)))

    serial = [told(concurrent_store.source.fetch(*asked(corpus, i))) for i in range(N_CALLS)]
    assert len(set(serial)) == len(serial)
    executor = ThreadPoolExecutor(N_THREADS)
    try:
        assert list(executor.map(fetch, range(N_CALLS), timeout=LIMIT_S)) == serial
    finally:
        executor.shutdown(wait=False, cancel_futures=True)  # a call that hangs fails here


async def gathered(source, corpus, n_tasks=N_TASKS):
    calls = (source.afetch(*asked(corpus, i)) for i in range(n_tasks))
    return [told(pool) for pool in await asyncio.gather(*calls)]


@pytest.fixture(scope="module")
def serial(shared_rest_server, corpus):
    """What 200 calls, one after another, are answered by the server."""
    with closing(qdrant_client.QdrantClient(url=shared_rest_server.url, **PATIENT)) as client:
        source = QdrantSource(client, "docs")
        return [told(source.fetch(*asked(corpus, i))) for i in range(N_TASKS)]


def awaited(server, experiment, **options):
    """Return what an experiment with a source over an async client returns; close the client."""

    async def experiment_and_close():
        client = qdrant_client.AsyncQdrantClient(url=server.url, **PATIENT, **options)
        try:
            return await asyncio.wait_for(experiment(QdrantSource(client, "docs")), LIMIT_S)
        finally:
            await client.close()

    return asyncio.run(experiment_and_close())


def test_200_tasks_on_an_async_remote_client(shared_rest_server, corpus, serial):
    assert awaited(shared_rest_server, lambda source: gathered(source, corpus)) == serial


def test_cancelled_tasks_leave_the_others_whole_and_give_their_connections_back(
    rest_server, corpus, serial
):
    few = httpx.Limits(max_connections=20, max_keepalive_connections=20)

    def late(call):
        time.sleep(0.1)
        call.respond(*call.genuine())

    async def cancel_every_third(source):
        rest_server.fail(late)
        tasks = [asyncio.create_task(source.afetch(*asked(corpus, i))) for i in range(60)]
        await asyncio.sleep(0.15)  # some are answered, some are read, some still queue
        for task in tasks[::3]:
            task.cancel()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        rest_server.fail(None)
        return answers, await gathered(source, corpus, 40)

    answers, after = awaited(rest_server, cancel_every_third, limits=few)
    cancelled = [i for i, a in enumerate(answers) if isinstance(a, asyncio.CancelledError)]
    assert cancelled
    assert set(cancelled) <= set(range(0, 60, 3))
    for i in sorted(set(range(60)) - set(cancelled)):
        assert told(answers[i]) == serial[i]
    assert after == serial[:40]
