"""Sessions over a small random language model: one fine-tuning, many questions."""

import asyncio
import threading
from dataclasses import replace

import pytest

from sift_core import AnswerMode, ChoiceOptions, InvalidInputError
from sift_core.answering import AdapterCache, CostModel, FineTuningSettings, Strategy
from sift_core.answering.policy import Decision
from tests.engines import changed, engine_of

TOPIC = "How do I read the rows of a table?"
QUESTIONS = ["How many rows are read?", "Which table?", "What does the reader do?"]
TEXTS = [f"reader.read_rows(table, limit={n})\n\nRead {n} rows of a table." for n in range(6)]


@pytest.fixture(scope="module")
def engine(small_lm):
    return engine_of(
        small_lm,
        TEXTS,
        n_steps=3,
        options=ChoiceOptions(n_select=2),
        max_new_tokens=8,
        settings=FineTuningSettings(learning_rate=1e-2),
    )


@pytest.mark.parametrize("mode", ["base", "context", "both"])
def test_a_question_of_a_session_is_answered_as_after_a_fine_tuning_of_its_own(engine, mode):
    first = engine.session(TOPIC, mode=mode).answer(TOPIC)
    expected = engine.answer(TOPIC, mode=mode)
    assert (first.text, first.mode) == (expected.text, AnswerMode(mode))
    assert first.chunks.document_ids == expected.chunks.document_ids


def test_a_session_learns_once(engine):
    n_steps = []
    session = engine.session("limit of rows", mode="fine_tune", on_step=n_steps.append)
    answers = [session.answer(question) for question in QUESTIONS]
    assert len(n_steps) == 3
    assert {answer.fine_tuning for answer in answers} == {session.report}
    assert len({answer.text for answer in answers}) > 1


def test_sessions_of_several_topics_live_side_by_side(engine):
    topics = [("How do I read rows?", "fine_tune"), ("limit", "both"), ("table", "context")]
    alone = [engine.session(topic, mode=mode).bits_per_byte(TEXTS[0]) for topic, mode in topics]
    sessions = [engine.session(topic, mode=mode) for topic, mode in topics]
    assert [session.bits_per_byte(TEXTS[0]) for session in sessions] == alone


def test_streams_and_batches_of_a_session_say_what_its_answers_say(engine):
    session = engine.session(TOPIC, mode="both")
    expected = [session.answer(question).text for question in QUESTIONS]
    assert ["".join(session.stream(question)) for question in QUESTIONS] == expected
    batch = session.answers(QUESTIONS)
    assert [answer.text for answer in batch] == expected
    assert {answer.mode for answer in batch} == {AnswerMode.BOTH}


def test_what_prompts_begin_with_is_read_once(engine):
    prefix = engine.session(TOPIC, mode="context").answerer.prefix
    assert len(prefix.ids) > 20
    assert engine.session(TOPIC, mode="fine_tune").answerer.prefix is None


def test_what_was_said_before_counts_in_a_session(engine):
    session = engine.session(TOPIC, mode="fine_tune")
    history = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    with_history = session.answer(QUESTIONS[0], history=history)
    assert with_history.n_prompt_tokens > session.answer(QUESTIONS[0]).n_prompt_tokens


def test_the_same_chunks_are_learned_once_and_then_found(engine):
    engine.learning.cache.clear()
    first = engine.answer(TOPIC, mode="fine_tune")
    again = engine.answer(TOPIC, mode="fine_tune")
    assert (first.fine_tuning.source, again.fine_tuning.source) == ("trained", "memory")
    assert again.text == first.text
    assert again.fine_tuning.losses == first.fine_tuning.losses


class EmptyCache(AdapterCache):
    """A cache that says when it is asked, right before the learning."""

    def __init__(self):
        super().__init__()
        self.asked = threading.Event()

    def get(self, key):
        self.asked.set()

    def put(self, key, adapter, report):
        pytest.fail("the learning was not ended")


async def test_cancelling_the_opening_of_a_session_ends_its_learning(engine):
    cache = EmptyCache()
    long = changed(engine, n_steps=5000, cache=cache)
    task = asyncio.create_task(long.asession(TOPIC, mode="fine_tune"))
    await asyncio.to_thread(cache.asked.wait, 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    session = await engine.asession(TOPIC, mode="fine_tune")
    answer = await session.aanswer(TOPIC)
    assert answer.text == engine.answer(TOPIC, mode="fine_tune").text


def test_no_training_step_but_the_first_begins_after_the_callers_latency(engine):
    hasty = changed(engine, n_steps=500, cache=None)
    answer = hasty.answer(TOPIC, mode="fine_tune", latency_s=1e-3)
    assert answer.fine_tuning.n_steps == len(answer.chunks) == 1
    assert "time was over after 1 training steps" in answer.reasons


def test_auto_goes_by_the_cost_model_and_the_callers_latency(engine):
    slow = CostModel(
        prefill=((1, 100.0), (1000, 100.0)),
        adapted_prefill=((1, 100.0), (1000, 100.0)),
        step=((1, 1000.0), (1000, 1000.0)),
        new_token_s=0.0,
        adapted_new_token_s=0.0,
        setup_s=0.0,
    )
    timed = replace(engine, policy=PrefersLearning(slow))
    choice = timed.choose(TOPIC, latency_s=2500.0)
    assert (choice.mode, len(choice.learned)) == (AnswerMode.FINE_TUNE, 2)
    assert choice.features.latency_s < 2500  # what choosing took is gone
    assert choice.seconds_to_learn() < 2500 - 9


class PrefersLearning:
    """A caller's own policy."""

    on_off_topic = "base"

    def __init__(self, costs):
        self.costs = costs

    def decide(self, features):
        strategies = [Strategy(AnswerMode.FINE_TUNE, n) for n in (1, 2, 3)]
        seconds = [self.costs.seconds(features, one) for one in strategies]
        n_steps = sum(one <= features.latency_s for one in seconds)
        return Decision(mode=AnswerMode.FINE_TUNE, reasons=("mine",), n_steps=n_steps, answer_s=9)


def test_what_a_diverged_model_did_not_learn_is_not_among_its_chunks(engine):
    wild = changed(engine, settings=FineTuningSettings(learning_rate=1e30), cache=None)
    answer = wild.answer(TOPIC, mode="both")
    assert answer.mode is AnswerMode.CONTEXT
    assert len(answer.chunks) == 2
    assert answer.text == engine.answer(TOPIC, mode="context").text


def test_an_empty_question_is_refused(engine):
    with pytest.raises(InvalidInputError, match="empty"):
        engine.session(TOPIC, mode="base").answer(" ")
