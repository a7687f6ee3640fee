"""Many threads and tasks at once on one source: every answer is its own query's."""

import asyncio
import threading
import time
from concurrent.futures import Future, wait
from contextlib import closing

import httpx
import pytest

from sift_core.errors import CandidateSourceError
from sift_core.sources import QdrantSource

qdrant_client = pytest.importorskip("qdrant_client")

N_THREADS, QUERIES_A_THREAD = 32, 4
N_TASKS = 200
LIMIT_S = 300  # of a whole test: what takes longer hangs
PATIENT = {"timeout": 300, "check_compatibility": False}

# What the client of a server elsewhere has; for this machine it sets no limit and keeps no
# connection alive.
FAR = {**PATIENT, "limits": httpx.Limits(max_connections=100, max_keepalive_connections=20)}


def started(function, *arguments):
    """Return the future of a call in a thread that keeps nobody waiting if it hangs."""
    future = Future()

    def run():
        try:
            future.set_result(function(*arguments))
        except BaseException as error:  # handed to whoever waits
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def finished(futures):
    """Return the results of threads, in order; fail if one hangs."""
    _, missing = wait(futures, timeout=LIMIT_S)
    assert not missing, f"{len(missing)} of {len(futures)} threads hang"
    return [future.result() for future in futures]


def run(awaitable):
    """Return what a coroutine returns, run in a loop of its own; fail if it hangs."""
    return finished([started(asyncio.run, awaitable)])[0]


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


def in_threads(ask, n_threads=N_THREADS):
    """Return the answers `ask(i)`, asked from threads that all start at once."""
    together = threading.Barrier(n_threads)

    def several(thread):
        together.wait(LIMIT_S)
        return [ask(i) for i in range(thread, n_threads * QUERIES_A_THREAD, n_threads)]

    rows = finished([started(several, thread) for thread in range(n_threads)])
    return [rows[i % n_threads][i // n_threads] for i in range(n_threads * QUERIES_A_THREAD)]


def test_32_threads_are_answered_as_one_is(concurrent_store, corpus):
    source = concurrent_store.source

    def fetch(i):
        return told(source.fetch(*asked(corpus, i)))

    serial = [fetch(i) for i in range(N_THREADS * QUERIES_A_THREAD)]
    assert len(set(serial)) == len(serial)
    assert in_threads(fetch) == serial


async def gathered(source, corpus, n_tasks=N_TASKS):
    calls = (source.afetch(*asked(corpus, i)) for i in range(n_tasks))
    return [told(pool) for pool in await asyncio.gather(*calls)]


@pytest.fixture(scope="module")
def serial(shared_rest_server, corpus):
    """What 200 calls, one after another, are answered by the server."""
    with closing(qdrant_client.QdrantClient(url=shared_rest_server.url, **PATIENT)) as client:
        source = QdrantSource(client, "docs")
        return [told(source.fetch(*asked(corpus, i))) for i in range(N_TASKS)]


def awaited(client, experiment):
    """Return what an experiment with a source over an async client returns; close the client."""

    async def experiment_and_close():
        try:
            return await experiment(QdrantSource(client, "docs"))
        finally:
            await client.close()

    return run(experiment_and_close())


def remote(server, **options):
    return qdrant_client.AsyncQdrantClient(url=server.url, **options)


@pytest.mark.parametrize("options", [PATIENT, FAR], ids=["near", "far"])
def test_200_tasks_on_an_async_remote_client(shared_rest_server, corpus, serial, options):
    client = remote(shared_rest_server, **options)
    assert awaited(client, lambda source: gathered(source, corpus)) == serial


def test_a_call_that_fails_leaves_the_other_threads_whole(shared_rest_server, corpus, serial):
    with closing(qdrant_client.QdrantClient(url=shared_rest_server.url, **FAR)) as client:
        source = QdrantSource(client, "docs")

        def fetch(i):
            try:
                return told(source.fetch(*asked(corpus, i)))
            except CandidateSourceError:
                return None

        shared_rest_server.fail(lambda call: call.respond(503, {}, b""), first=20, times=1)
        answers = in_threads(fetch)
        shared_rest_server.fail(None)
        failed = [i for i, answer in enumerate(answers) if answer is None]
        assert len(failed) == 1
        expected = [None if i in failed else serial[i] for i in range(len(answers))]
        assert answers == expected


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

    client = remote(rest_server, **{**PATIENT, "limits": few})
    answers, after = awaited(client, cancel_every_third)
    cancelled = [i for i, a in enumerate(answers) if isinstance(a, asyncio.CancelledError)]
    assert cancelled
    assert set(cancelled) <= set(range(0, 60, 3))
    for i in sorted(set(range(60)) - set(cancelled)):
        assert told(answers[i]) == serial[i]
    assert after == serial[:40]
