"""Streams over a computation that is slow on purpose, and over a small random language model."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from textwrap import dedent

import pytest

from sift_core import (
    Answer,
    AnswerError,
    AnswerMode,
    ChoiceOptions,
    InvalidInputError,
)
from sift_core.answering import FineTuningSettings
from sift_core.answering.fine_tuning import fine_tuned
from sift_core.answering.streams import AnswerStream, AsyncAnswerStream
from tests.engines import engine_of

QUESTION = "How do I read the rows of a table?"
TEXTS = [f"reader.read_rows(table, limit={n})\n\nRead {n} rows of a table." for n in range(6)]
DEADLINE_S = 60


@pytest.fixture
def executor():
    with ThreadPoolExecutor(max_workers=1) as pool:
        yield pool


@pytest.fixture(scope="module")
def engine(small_lm):
    options = ChoiceOptions(n_select=2)
    return engine_of(small_lm, TEXTS, n_steps=3, options=options, max_new_tokens=12)


class Writer:
    """Writes words until it is told that enough is written, or for ever."""

    def __init__(self, n_words=None, error=None):
        self.n_words, self.error = n_words, error
        self.started, self.ended = threading.Event(), threading.Event()

    def __call__(self, on_text, on_step):
        self.started.set()
        try:
            n = 0
            while self.n_words is None or n < self.n_words:
                on_step(0.5)
                on_text(f"word{n} ")
                n += 1
            if self.error is not None:
                raise self.error
            return Answer(text="".join(f"word{i} " for i in range(n)), mode=AnswerMode.BASE)
        finally:
            self.ended.set()


def test_the_pieces_come_in_order_and_add_up_to_the_answer(executor):
    stream = AnswerStream(Writer(3), executor.submit)
    assert list(stream) == ["word0 ", "word1 ", "word2 "]
    assert stream.answer().text == "word0 word1 word2 "
    assert list(stream) == []
    assert AnswerStream(Writer(2), executor.submit).answer().text == "word0 word1 "


def test_an_error_comes_after_the_pieces_before_it_and_again_with_the_answer(executor):
    stream = AnswerStream(Writer(2, error=AnswerError("out of memory")), executor.submit)
    assert [next(stream), next(stream)] == ["word0 ", "word1 "]
    with pytest.raises(AnswerError, match="out of memory"):
        next(stream)
    with pytest.raises(AnswerError, match="out of memory"):
        stream.answer()


def test_closing_a_stream_ends_its_computation(executor):
    writer = Writer()
    with AnswerStream(writer, executor.submit) as stream:
        next(stream)
    assert writer.ended.is_set()
    assert list(stream) == []
    with pytest.raises(AnswerError, match="closed before its end"):
        stream.answer()


def test_closing_a_stream_that_waits_its_turn_takes_it_from_the_queue(executor):
    running, waiting = Writer(), Writer()
    with AnswerStream(running, executor.submit):
        AnswerStream(waiting, executor.submit).close()
    assert not waiting.started.is_set()


def test_closing_a_waiting_stream_lets_its_reader_in_another_thread_go(executor):
    with AnswerStream(Writer(), executor.submit), ThreadPoolExecutor(max_workers=1) as readers:
        waiting = AnswerStream(Writer(), executor.submit)
        read = readers.submit(list, waiting)
        while not read.running():
            pass
        waiting.close()
        assert read.result(DEADLINE_S) == []


async def test_closing_a_waiting_stream_lets_its_reading_task_go(executor):
    with AnswerStream(Writer(), executor.submit):
        waiting = AsyncAnswerStream(Writer(), executor.submit)
        read = asyncio.create_task(anext(waiting, "over"))
        await asyncio.sleep(0)
        await waiting.aclose()
        assert await asyncio.wait_for(read, DEADLINE_S) == "over"


def test_an_async_stream_is_refused_in_another_event_loop(executor):
    async def make():
        return AsyncAnswerStream(Writer(3), executor.submit)

    stream = asyncio.run(make())
    with pytest.raises(InvalidInputError, match="event loop that it was made in"):
        asyncio.run(stream.answer())


def test_an_unread_stream_does_not_keep_the_interpreter_from_exiting():
    script = """
        import itertools
        from concurrent.futures import ThreadPoolExecutor
        from sift_core.answering.streams import AnswerStream

        def write(on_text, on_step):
            for n in itertools.count():
                on_text(str(n))

        stream = AnswerStream(write, ThreadPoolExecutor(max_workers=1).submit)
        next(stream)
        """
    done = subprocess.run([sys.executable, "-c", dedent(script)], timeout=DEADLINE_S)
    assert done.returncode == 0


def test_a_forgotten_stream_ends_its_computation(executor):
    writer = Writer()
    stream = AnswerStream(writer, executor.submit)
    next(stream)
    del stream
    gc.collect()
    assert writer.ended.wait(DEADLINE_S)


async def test_an_async_stream_gives_the_same_pieces(executor):
    stream = AsyncAnswerStream(Writer(3), executor.submit)
    assert [piece async for piece in stream] == ["word0 ", "word1 ", "word2 "]
    assert (await stream.answer()).text == "word0 word1 word2 "
    failing = AsyncAnswerStream(Writer(1, error=AnswerError("no")), executor.submit)
    with pytest.raises(AnswerError, match="no"):
        await failing.answer()


async def test_cancelling_the_reading_task_ends_the_computation(executor):
    writer = Writer()

    async def read():
        async with AsyncAnswerStream(writer, executor.submit) as stream:
            async for _ in stream:
                await asyncio.sleep(0)

    task = asyncio.create_task(read())
    await asyncio.to_thread(writer.started.wait, DEADLINE_S)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert writer.ended.is_set()


def test_a_closed_event_loop_ends_the_computation(executor):
    writer = Writer()

    async def leave():
        return AsyncAnswerStream(
            writer, executor.submit
        )  # kept, so that it is not merely forgotten

    stream = asyncio.run(leave())
    assert writer.ended.wait(DEADLINE_S)
    del stream


@pytest.mark.parametrize("mode", ["context", "fine_tune"])
def test_the_engine_streams_what_it_answers(engine, mode):
    stream = engine.stream(QUESTION, mode=mode)
    pieces = list(stream)
    answer = engine.answer(QUESTION, mode=mode)
    assert len(pieces) > 1
    assert "".join(pieces) == answer.text == stream.answer().text
    assert stream.answer().chunks.document_ids == answer.chunks.document_ids
    assert stream.answer().mode.value == mode


def test_closing_a_stream_ends_beams_too_which_have_no_text_before_their_end(engine):
    lengths, started = [], threading.Event()

    def watch(input_ids, scores, **_):
        lengths.append(input_ids.shape[1])
        started.set()
        return False

    beams = {"num_beams": 2, "max_new_tokens": 900, "stopping_criteria": [watch]}
    with engine.stream(QUESTION, mode="base", **beams):
        assert started.wait(DEADLINE_S)
    assert len(lengths) < 899


@pytest.mark.parametrize("mode", ["base", "fine_tune"])
def test_a_stream_inside_a_callback_of_an_answer_changes_neither(engine, mode):
    inner = engine.answer(QUESTION, mode="base").text
    outer = engine.answer(QUESTION, mode=mode).text
    told = []

    def ask(_):
        if not told:
            told.append("".join(engine.stream(QUESTION, mode="base")))

    assert engine.answer(QUESTION, mode=mode, on_text=ask).text == outer
    assert told == [inner]


async def test_a_thread_that_acts_for_a_prepared_block_sees_its_own_answer(engine):
    # `asyncio.to_thread` and LangChain's executors run in a copy of the caller's context.
    base = engine.answer(QUESTION, mode="base").text
    with fine_tuned(engine.language_model, TEXTS, FineTuningSettings(learning_rate=1e-2)):
        adapted = engine.language_model.generate(QUESTION, max_new_tokens=12).text
        assert adapted != base
        assert (await asyncio.to_thread(engine.answer, QUESTION, mode="base")).text == base
        generate = engine.language_model.generate
        assert (await asyncio.to_thread(generate, QUESTION, max_new_tokens=12)).text == adapted


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_process_has_workers_and_a_free_model(engine):
    language_model = engine.language_model
    assert language_model.submit(int).result() == 0
    with ThreadPoolExecutor(max_workers=1) as other, language_model.lock.held():
        pid = other.submit(_fork_and_use, language_model).result(DEADLINE_S)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def _fork_and_use(language_model):
    pid = os.fork()
    if pid:
        return pid
    signal.alarm(DEADLINE_S)  # ends a child that waits for ever
    try:
        with language_model.lock.held():
            pass
        os._exit(language_model.submit(int).result())
    finally:
        os._exit(1)


def test_an_engine_without_a_source_answers_from_candidates_at_hand(engine):
    alone = engine_of(engine.language_model, max_new_tokens=6)
    with pytest.raises(InvalidInputError, match="`source`"):
        alone.answer(QUESTION)
    choice = engine.choose(QUESTION, mode="context")
    at_hand = alone.choose_from(choice.query, choice.pool, mode="context")
    assert alone.answer_from(at_hand).mode is AnswerMode.CONTEXT
