"""What one query learns is nobody else's, and nothing of it stays."""

import asyncio
import gc
import random
import resource
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from sift_core import (
    AnswerError,
    AnswerMode,
    CandidatePool,
    ChoiceOptions,
    NearestNeighborSelector,
    Query,
)
from sift_core.answering import FineTuningSettings, fine_tune
from sift_core.answering.fine_tuning import fine_tuned
from sift_core.answering.model.fair_lock import MAX_QUEUED, N_WORKERS, FairLock, Workers
from sift_core.errors import BusyError
from sift_core.testing import HashingEmbedder
from tests.answering.plain_peft import assert_same_state, lora, state_of
from tests.engines import changed, engine_of

FAST = FineTuningSettings(lora=lora(8), learning_rate=1e-2)
QUESTION = "the cat"


def pool_about(topic):
    texts = [f"{topic} number {n}" for n in range(3)]
    embedder = HashingEmbedder()
    embeddings = embedder.embed_documents(texts)
    query = Query(text=QUESTION, embedding=embedder.embed_query(QUESTION))
    pool = CandidatePool(
        document_ids=list("abc"),
        texts=texts,
        embeddings=embeddings,
        similarities=embeddings @ query.embedding,
    )
    return query, pool


@pytest.fixture
def make_engine(make_random_lm):
    def make(shape="llama, tied head", n_steps=3):
        return engine_of(
            make_random_lm(shape),
            options=ChoiceOptions(n_select=1, selector=NearestNeighborSelector()),
            selector=NearestNeighborSelector(),
            n_steps=n_steps,
            max_new_tokens=6,
            settings=FAST,
            cache=None,
        )

    return make


JOBS = [(topic, mode) for topic in ("dogs", "cows", "hens") for mode in ("fine_tune", "both")]
JOBS += [("dogs", "base"), ("cows", "context")]


def outcome(answer):
    losses = None if answer.fine_tuning is None else answer.fine_tuning.losses
    return answer.text, answer.mode, losses


def ask(engine, job):
    topic, mode = job
    return outcome(engine.answer_from(engine.choose_from(*pool_about(topic), mode=mode)))


async def ask_awaiting(engine, job):
    topic, mode = job
    choice = engine.choose_from(*pool_about(topic), mode=mode)
    return outcome(await engine.aanswer_from(choice))


@pytest.mark.parametrize(
    "shape", ["llama, tied head", pytest.param("gpt2", marks=pytest.mark.slow)]
)
def test_concurrent_answers_equal_serial_ones_bit_for_bit(make_engine, shape):
    engine = make_engine(shape)
    before = state_of(engine.language_model)
    serial = [ask(engine, job) for job in JOBS]
    assert len(set(serial)) == len(JOBS)
    order = random.Random(0).sample(JOBS, len(JOBS))
    with ThreadPoolExecutor(8) as threads:
        in_threads = list(threads.map(lambda job: ask(engine, job), order))

    async def all_at_once():
        return await asyncio.gather(*(ask_awaiting(engine, job) for job in order))

    expected = [serial[JOBS.index(job)] for job in order]
    assert in_threads == expected
    assert asyncio.run(all_at_once()) == expected
    assert_same_state(engine.language_model, before)


def test_a_short_question_does_not_wait_for_the_end_of_a_long_fine_tuning(make_random_lm):
    lm = make_random_lm()
    steps, asked_at = [], []
    started, asker = threading.Event(), threading.get_ident()

    def note(loss):
        steps.append(loss)
        if len(steps) == 3:
            with lm.lock.held():  # until the other waits for its turn, however late it is
                started.set()
                while not lm.lock._waiting:
                    time.sleep(0.001)

    def note_turn(*_):
        if threading.get_ident() == asker:
            asked_at.append(len(steps))

    lm.model.get_input_embeddings().register_forward_hook(note_turn)
    with ThreadPoolExecutor(1) as learner:
        learning = learner.submit(fine_tune, lm, ["abcdefgh"] * 30, FAST, on_step=note)
        assert started.wait(60)
        lm.bits_per_byte("abc")
        learning.result()
    assert set(asked_at) == {3}
    assert len(steps) == 30


class Raises:
    def __init__(self, error):
        self.error = error

    def __call__(self, *_):
        raise self.error


async def cancelled(engine, choice):
    task = asyncio.create_task(engine.aanswer_from(choice))
    while engine.language_model.lock._owner is None:  # it has begun to learn
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def failed_in_a_callback(engine, choice):
    with pytest.raises(KeyError):
        engine.answer_from(choice, on_step=Raises(KeyError("the caller's own")))


async def failed_while_writing(engine, choice):
    short = changed(engine, n_steps=3)
    choice = short.choose_from(*pool_about("dogs"), mode="fine_tune")
    with pytest.raises(KeyError):
        short.answer_from(choice, on_text=Raises(KeyError("the caller's own")))


async def closed(engine, choice):
    with engine.stream_from(choice) as stream:
        stream.close()


async def out_of_memory(engine, choice):
    original = torch.optim.Adam.step
    torch.optim.Adam.step = Raises(torch.OutOfMemoryError("out of memory"))
    try:
        with pytest.raises(AnswerError, match="out of memory"):
            engine.answer_from(choice)
    finally:
        torch.optim.Adam.step = original


async def diverged(engine, choice):
    with fine_tuned(engine.language_model, ["a b c"] * 4, FineTuningSettings(learning_rate=1e30)):
        pass


@pytest.mark.parametrize(
    "end",
    [cancelled, failed_in_a_callback, failed_while_writing, closed, out_of_memory, diverged],
)
async def test_the_base_is_bit_identical_however_a_query_ends(make_engine, end):
    engine = make_engine(n_steps=1000)
    lm = engine.language_model
    before = state_of(lm)
    base = lm.bits_per_byte(QUESTION)
    query, pool = pool_about("dogs")
    await end(engine, engine.choose_from(query, pool.take([0, 1, 2] * 400), mode="fine_tune"))
    assert lm.bits_per_byte(QUESTION) == base
    assert_same_state(lm, before)
    assert ask(make_engine(), ("cows", "fine_tune"))[1] is AnswerMode.FINE_TUNE


@pytest.mark.parametrize("n_queries", [10, pytest.param(500, marks=pytest.mark.slow)])
def test_queries_leave_no_adapter_and_no_memory_behind(make_engine, n_queries):
    engine = make_engine()
    choices = [engine.choose_from(*pool_about(f"topic {n}"), mode="fine_tune") for n in range(10)]

    def query(n):
        assert engine.answer_from(choices[n % 10], max_new_tokens=1).fine_tuning.n_steps == 3

    def n_tensors():
        gc.collect()
        return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())

    def peak_mib():  # never falls, so what it grows by is what was never given back
        unit = 2**20 if sys.platform == "darwin" else 2**10
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit

    for n in range(10):
        query(n)
    before, peak_before = n_tensors(), peak_mib()
    for n in range(n_queries):
        query(n)
    assert n_tensors() <= before
    assert peak_mib() - peak_before < 8  # an adapter with Adam's moments has .4 MiB


async def test_more_than_a_queue_full_of_answers_is_refused_and_the_others_are_given():
    workers, release = Workers(), threading.Event()
    jobs = [workers.submit(release.wait) for _ in range(N_WORKERS + MAX_QUEUED)]
    with pytest.raises(BusyError, match="answers wait for this model already"):
        workers.submit(release.wait)
    release.set()
    for job in jobs:
        job.result(60)
    workers.submit(release.wait).result(60)


def test_a_fair_lock_is_held_in_the_order_of_asking_and_nests():
    lock, order = FairLock(), []

    def take(n):
        with lock.held(), lock.held():
            order.append(n)

    threads = [threading.Thread(target=take, args=(n,)) for n in range(5)]
    with lock.held():
        for n, thread in enumerate(threads):
            thread.start()
            while len(lock._waiting) <= n:
                pass
        lock.yield_to_waiting()  # all five, then again this one
        assert order == [0, 1, 2, 3, 4]
    for thread in threads:
        thread.join()
