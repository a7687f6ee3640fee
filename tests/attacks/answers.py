"""Concurrent answers, some of which fail: each is what it is alone, and the base stays."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from sift_core.answering import AnswerEngine, LanguageModel
from sift_core.selection import NearestNeighborSelector
from tests.answering.shapes import SHAPES, byte_tokenizer
from tests.answering.test_isolation import FAST, ask, ask_awaiting, outcome, pool_about
from tests.attacks.frame import Failed

TOPICS = ("dogs", "cows", "hens", "the cat", "</s> <s>")
MODES = ("base", "context", "fine_tune", "both", "auto")


class Stop(Exception):
    """What a caller's own code raises."""


def concurrent(rng, folder):
    """Threads, tasks and streams at once, failed and cancelled ones among them."""
    shape = rng.choice(sorted(SHAPES))
    engine = AnswerEngine(
        language_model=LanguageModel(SHAPES[shape](), byte_tokenizer()),
        context_selector=NearestNeighborSelector(),
        fine_tuning_selector=NearestNeighborSelector(),
        n_context=1,
        n_steps=rng.randint(1, 4),
        max_new_tokens=rng.randint(1, 6),
        settings=FAST,
        adapter_cache=None,
    )
    engine.language_model.verify_base(exact=True)
    jobs = [(rng.choice(TOPICS), rng.choice(MODES)) for _ in range(rng.randint(2, 8))]
    alone = [ask(engine, job) for job in jobs]
    ways = [rng.choice(list(WAYS)) for _ in jobs]
    moments = [rng.randint(1, 3) for _ in jobs]
    with ThreadPoolExecutor(len(jobs)) as threads:
        together = threads.map(lambda way, *given: WAYS[way](engine, *given), ways, jobs, moments)
        for job, way, found, expected in zip(jobs, ways, together, alone, strict=True):
            if found is not None and found != expected:
                raise Failed(f"{shape}, {way} {job}: {found} instead of {expected}")
    if [ask(engine, job) for job in jobs] != alone:
        raise Failed(f"{shape}: answers differ afterwards")
    engine.language_model.verify_base(exact=True)


def failing(engine, job, moment):
    def fail(_):
        nonlocal moment
        moment -= 1
        if moment == 0:
            raise Stop

    choice = engine.choose_from(*pool_about(job[0]), mode=job[1])
    with suppress(Stop):
        engine.answer_from(choice, on_step=fail, on_text=fail)


def cancelled(engine, job, moment):
    async def cancel():
        task = asyncio.ensure_future(ask_awaiting(engine, job))
        await asyncio.sleep(moment * 0.003)
        task.cancel()
        with suppress(asyncio.CancelledError):
            return await task

    return asyncio.run(cancel())


def streamed(engine, job, moment):
    with engine.stream_from(engine.choose_from(*pool_about(job[0]), mode=job[1])) as stream:
        for _ in stream:
            if moment == 1:
                return None
        return outcome(stream.answer)


WAYS = {
    "call": lambda engine, job, _: ask(engine, job),
    "await": lambda engine, job, _: asyncio.run(ask_awaiting(engine, job)),
    "fail": failing,
    "cancel": cancelled,
    "stream": streamed,
}
ATTACKS = {"concurrent": concurrent}
