"""Many threads and tasks at once on one source: every answer is its own query's."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from sift_core.sources import QdrantSource

qdrant_client = pytest.importorskip("qdrant_client")

N_THREADS, N_CALLS = 32, 128
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


def test_cancelled_tasks_leave_the_others_whole_and_give_their_connections_back(
    rest_server, corpus
):
    few = httpx.Limits(max_connections=20, max_keepalive_connections=20)

    def late(call):
        time.sleep(0.1)
        call.respond(*call.genuine())

    async def cancel_every_third():
        client = qdrant_client.AsyncQdrantClient(url=rest_server.url, **PATIENT, limits=few)
        source = QdrantSource(client, "docs")
        serial = [told(await source.afetch(*asked(corpus, i))) for i in range(60)]
        rest_server.fail(late)
        tasks = [asyncio.create_task(source.afetch(*asked(corpus, i))) for i in range(60)]
        await asyncio.sleep(0.15)  # some are answered, some are read, some still queue
        for task in tasks[::3]:
            task.cancel()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        rest_server.fail(None)
        calls = (source.afetch(*asked(corpus, i)) for i in range(60))
        after = [told(pool) for pool in await asyncio.gather(*calls)]
        await client.close()
        return serial, answers, after

    serial, answers, after = asyncio.run(asyncio.wait_for(cancel_every_third(), LIMIT_S))
    cancelled = {i for i, a in enumerate(answers) if isinstance(a, asyncio.CancelledError)}
    assert cancelled
    assert cancelled <= set(range(0, 60, 3))
    for i in set(range(60)) - cancelled:
        assert told(answers[i]) == serial[i]
    assert after == serial
