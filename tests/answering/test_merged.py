"""Mode "merged": adapters learned beforehand, summed for a question, which nobody else sees."""

import asyncio
import gc
import math
import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from sift_core import (
    AnswerMode,
    CandidatePool,
    ChoiceOptions,
    InMemorySource,
    InvalidInputError,
    Query,
)
from sift_core.answering import FineTuningSettings, learn_clusters
from sift_core.testing import HashingEmbedder
from tests.answering.plain_peft import lora
from tests.engines import changed, engine_of

FAST = FineTuningSettings(lora=lora(8), learning_rate=1e-2)
TOPICS = ("dogs bark", "cows moo", "hens peck")
TEXTS = [f"{topic} number {n}" for topic in TOPICS for n in range(4)]
QUESTIONS = [f"{topic}?" for topic in TOPICS]
JOBS = [(question, mode) for question in QUESTIONS for mode in ("merged", "fine_tune")]
JOBS += [(QUESTIONS[0], "base"), (QUESTIONS[1], "context")]


class Uncalled:
    """A source that is not to be asked."""

    def fetch(self, query, n_candidates, *, filter=None):
        raise AssertionError("it was asked")


@pytest.fixture
def make_engine(make_random_lm, tmp_path):
    embedder = HashingEmbedder()
    source = InMemorySource(embedder.embed_documents(TEXTS), TEXTS, embedder_name=embedder.name)

    def make(shape="llama, tied head", **options):
        lm = make_random_lm(shape)
        sample = source.sample(100, np.random.default_rng(0))
        adapters = learn_clusters(
            lm, sample, tmp_path / shape, embedder_name=embedder.name, n_clusters=3, settings=FAST
        )
        learning = {"n_steps": 3, "settings": FAST, "cache": None, "adapters": adapters}
        options = {"source": source, "options": ChoiceOptions(n_select=1), **options}
        return engine_of(lm, embedder=embedder, max_new_tokens=6, **learning, **options)

    return make


def ask(engine, job):
    question, mode = job
    answer = engine.answer(question, mode=mode)
    return answer.text, answer.mode


async def ask_awaiting(engine, job):
    question, mode = job
    answer = await engine.aanswer(question, mode=mode)
    return answer.text, answer.mode


def test_an_answer_says_what_was_merged_and_nothing_was_fetched_or_learned(make_engine):
    engine = make_engine(source=Uncalled())
    answer = engine.answer(QUESTIONS[0], mode="merged")
    assert answer.mode is AnswerMode.MERGED
    assert answer.reasons[0] == "it was asked for"
    assert "of 3 adapters are merged" in answer.reasons[1]
    assert answer.timings["merge"] > 0
    assert answer.timings.keys().isdisjoint({"fetch", "fine_tune"})
    assert (len(answer.chunks), answer.n_read, answer.fine_tuning) == (0, 0, None)
    assert math.isnan(answer.standard_deviation)


def test_a_question_is_answered_with_what_its_cluster_taught(make_engine):
    engine = make_engine()
    sessions = {question: engine.session(question, mode="merged") for question in QUESTIONS}
    bits = {
        question: [session.bits_per_byte(text) for text in TEXTS[::4]]
        for question, session in sessions.items()
    }
    for number in range(3):
        of_text = [bits[question][number] for question in QUESTIONS]
        assert np.argmin(of_text) == number
        assert of_text[number] < engine.language_model.bits_per_byte(TEXTS[4 * number]) - 0.1


@pytest.mark.parametrize(
    "shape", ["llama, tied head", pytest.param("gpt2", marks=pytest.mark.slow)]
)
def test_concurrent_answers_equal_serial_ones_and_the_base_is_bit_identical(make_engine, shape):
    engine = make_engine(shape)
    engine.language_model.verify_base(exact=True)
    serial = [ask(engine, job) for job in JOBS]
    order = JOBS * 3
    random.Random(0).shuffle(order)
    with ThreadPoolExecutor(8) as threads:
        in_threads = list(threads.map(lambda job: ask(engine, job), order))

    async def all_at_once():
        return await asyncio.gather(*(ask_awaiting(engine, job) for job in order))

    expected = [serial[JOBS.index(job)] for job in order]
    assert in_threads == expected
    assert asyncio.run(all_at_once()) == expected
    engine.language_model.verify_base(exact=True)


def test_streams_sessions_and_batches_say_what_an_answer_says(make_engine):
    engine = make_engine()
    expected = engine.answer(QUESTIONS[1], mode="merged")
    with engine.stream(QUESTIONS[1], mode="merged") as stream:
        assert "".join(stream) == expected.text
    assert stream.answer().mode is AnswerMode.MERGED
    session = engine.session(QUESTIONS[1], mode="merged")
    assert session.answer(QUESTIONS[1]).text == expected.text
    assert session.answers([QUESTIONS[1]])[0].text == expected.text
    assert session.report is None


def test_candidates_at_hand_are_left_alone(make_engine):
    engine = make_engine(source=None)
    embedder = HashingEmbedder()
    query = Query(text=QUESTIONS[2], embedding=embedder.embed_query(QUESTIONS[2]))
    for pool in (
        CandidatePool.empty(),
        CandidatePool(
            document_ids=["1"],
            texts=["x"],
            embeddings=query.embedding[np.newaxis],
            similarities=[1.0],
        ),
    ):
        answer = engine.answer_from(engine.choose_from(query, pool, mode="merged"))
        assert answer.mode is AnswerMode.MERGED
        assert not len(answer.chunks)


def test_an_answer_that_is_stopped_leaves_the_base_as_it_is(make_engine):
    engine = make_engine()
    lm = engine.language_model
    lm.verify_base(exact=True)
    base = lm.bits_per_byte(QUESTIONS[0])

    def fail(text):
        raise KeyError("the caller's own")

    with pytest.raises(KeyError):
        engine.answer(QUESTIONS[0], mode="merged", on_text=fail)
    with engine.stream(QUESTIONS[0], mode="merged") as stream:
        stream.close()
    assert lm.bits_per_byte(QUESTIONS[0]) == base
    lm.verify_base(exact=True)


@pytest.mark.parametrize("n_queries", [20, pytest.param(500, marks=pytest.mark.slow)])
def test_questions_leave_no_adapter_behind(make_engine, n_queries):
    engine = make_engine()

    def n_tensors():
        gc.collect()
        return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())

    ask(engine, (QUESTIONS[0], "merged"))
    before = n_tensors()
    for n in range(n_queries):
        ask(engine, (QUESTIONS[n % 3], "merged"))
    assert n_tensors() <= before


def test_what_cannot_be_merged_is_refused_before_any_work(make_engine):
    engine = make_engine()
    with pytest.raises(InvalidInputError, match="needs adapters"):
        changed(engine, adapters=None).answer(QUESTIONS[0], mode="merged")
    other = Query(text="q", embedding=np.ones(3), embedder_name="other")
    with pytest.raises(InvalidInputError, match="learned with vectors of"):
        engine.choose_from(other, CandidatePool.empty(), mode="merged")
