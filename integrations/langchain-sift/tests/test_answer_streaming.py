"""SIFTAnswer in pieces, given up, and watched by callbacks."""

import asyncio
from functools import reduce
from operator import add

import pytest

pytest.importorskip("torch", reason="needs sift-rerank's extra fine-tune")

from langchain_core.callbacks import AsyncCallbackHandler, BaseCallbackHandler

from langchain_sift import SIFTAnswer
from sift_core import AnswerError, InvalidInputError


class Recorder(BaseCallbackHandler):
    def __init__(self):
        self.started, self.ended, self.failed = [], [], []

    def on_chain_start(self, serialized, inputs, *, tags=None, metadata=None, **kwargs):
        self.started.append({"name": kwargs.get("name"), "tags": tags, "metadata": metadata})

    def on_chain_end(self, outputs, **kwargs):
        self.ended.append(outputs)

    def on_chain_error(self, error, **kwargs):
        self.failed.append(error)


class AsyncRecorder(Recorder, AsyncCallbackHandler):
    async def on_chain_start(self, *args, **kwargs):
        Recorder.on_chain_start(self, *args, **kwargs)

    async def on_chain_end(self, *args, **kwargs):
        Recorder.on_chain_end(self, *args, **kwargs)

    async def on_chain_error(self, *args, **kwargs):
        Recorder.on_chain_error(self, *args, **kwargs)


@pytest.fixture
def answer(language_model, make_in_memory, documents):
    return SIFTAnswer.from_vectorstore(
        make_in_memory(documents), language_model, mode="context", n_context=3, max_new_tokens=6
    )


def without_timings(result):
    return {key: value for key, value in result.items() if key != "timings"}


async def drained(stream):
    return [piece async for piece in stream]


def test_the_pieces_add_up_to_what_invoke_returns(answer, question):
    pieces = list(answer.stream(question))
    assert all(piece.keys() == {"answer"} for piece in pieces[:-1])
    assert len(pieces) > 3
    assert without_timings(reduce(add, pieces)) == without_timings(answer.invoke(question))


async def test_the_async_pieces_are_the_same(answer, question):
    pieces = await drained(answer.astream(question))
    expected = list(answer.stream(question))
    assert list(map(without_timings, pieces)) == list(map(without_timings, expected))


def test_an_answer_without_text_streams_as_one(answer, question):
    first = answer.invoke(question)["answer"][0]
    pieces = list(answer.stream(question, stop=[first]))
    assert len(pieces) == 1
    assert pieces[0]["answer"] == ""


def test_a_stream_that_is_given_up_frees_the_model(answer, question, counter):
    stream = answer.stream(question, **counter.options)
    assert next(stream)["answer"]
    stream.close()
    n_tokens = counter.n_tokens
    assert answer.invoke(question)["answer"]
    assert counter.n_tokens == n_tokens
    assert counter.is_cut_short


async def test_an_async_stream_that_is_left_frees_the_model(answer, question, counter):
    stream = answer.astream(question, **counter.options)
    assert (await anext(stream))["answer"]
    await stream.aclose()
    n_tokens = counter.n_tokens
    assert (await answer.ainvoke(question))["answer"]
    assert counter.n_tokens == n_tokens
    assert counter.is_cut_short


@pytest.mark.parametrize("how", ["astream", "ainvoke"])
async def test_cancelling_the_task_frees_the_model(answer, question, counter, how):
    async def read():
        if how == "ainvoke":
            return await answer.ainvoke(question, **counter.options)
        return await drained(answer.astream(question, **counter.options))

    task = asyncio.create_task(read())
    while not counter.n_tokens:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await answer.ainvoke(question))["answer"]
    n_tokens = counter.n_tokens
    assert counter.is_cut_short
    await asyncio.sleep(0.2)
    assert counter.n_tokens == n_tokens


@pytest.mark.parametrize("how", ["invoke", "stream"])
def test_a_call_is_one_run_with_its_name_tags_and_metadata(answer, question, how):
    recorder = Recorder()
    config = {"callbacks": [recorder], "tags": ["t"], "metadata": {"user": 7}}
    if how == "invoke":
        expected = answer.invoke(question, config)
    else:
        expected = reduce(add, answer.stream(question, config))
    (run,) = recorder.started
    assert run["name"] == "SIFTAnswer"
    assert run["tags"] == ["t"]
    assert run["metadata"]["user"] == 7
    assert recorder.ended == [expected]
    assert recorder.failed == []


async def test_errors_reach_the_callbacks(answer):
    recorder, arecorder = Recorder(), AsyncRecorder()
    with pytest.raises(InvalidInputError):
        answer.invoke("", {"callbacks": [recorder]})
    with pytest.raises(InvalidInputError):
        list(answer.stream("", {"callbacks": [recorder]}))
    with pytest.raises(InvalidInputError):
        await answer.ainvoke("", {"callbacks": [arecorder]})
    with pytest.raises(InvalidInputError):
        await drained(answer.astream("", {"callbacks": [arecorder]}))
    for each in (recorder, arecorder):
        assert [type(error) for error in each.failed] == [InvalidInputError] * 2
        assert each.ended == []


async def test_an_error_in_mid_answer_reaches_the_callbacks_and_frees_the_model(
    answer, question, counter
):
    def fail(input_ids, scores, **_):
        if counter.n_tokens == 3:
            raise RuntimeError("out of memory")
        return counter(input_ids, scores)

    recorder = AsyncRecorder()
    config, options = {"callbacks": [recorder]}, {"stopping_criteria": [fail]}
    stream = answer.astream(question, config, **options)
    assert (await anext(stream))["answer"]
    with pytest.raises(AnswerError, match="out of memory"):
        await drained(stream)
    assert [type(error) for error in recorder.failed] == [AnswerError]
    assert answer.invoke(question)["answer"]
