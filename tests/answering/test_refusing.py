"""Questions on which the documents say nothing: mode "auto" says so, or asks the model alone."""

import asyncio

import numpy as np
import pytest

from sift_core import AnswerMode, ChoiceOptions
from sift_core.answering.model.text_model import REFUSAL
from sift_core.testing import HashingEmbedder
from tests.engines import engine_of

TEXTS = [f"The shelf {n} holds books on {what}." for n in range(3) for what in ("cats", "boats")]
ON_TOPIC = "Which books does the shelf 1 hold?"
OFF_TOPIC = "Quinoa vxzq?"


@pytest.fixture
def make_engine(small_lm):
    def make(texts=TEXTS, **options):
        return engine_of(small_lm, texts, n_steps=2, max_new_tokens=4, **options)

    return make


def check(answer):
    assert (answer.text, answer.is_refusal) == (REFUSAL, True)
    assert answer.mode is AnswerMode.BASE
    assert (answer.n_prompt_tokens, answer.n_new_tokens, answer.finish_reason) == (0, 0, "stop")
    assert "off the topic" in answer.reasons[0]
    assert len(answer.chunks) == 0
    assert answer.fine_tuning is None


def test_what_the_documents_do_not_tell_is_refused_in_every_way(make_engine):
    engine = make_engine()
    check(engine.answer(OFF_TOPIC))
    check(asyncio.run(engine.aanswer(OFF_TOPIC)))
    with engine.stream(OFF_TOPIC) as stream:
        assert list(stream) == [REFUSAL]
        check(stream.answer())
    session = engine.session(OFF_TOPIC)
    check(session.answer(OFF_TOPIC))
    assert [one.text for one in session.answers([OFF_TOPIC, OFF_TOPIC])] == [REFUSAL] * 2
    assert not engine.answer(ON_TOPIC).is_refusal


def test_the_model_answers_where_it_may(make_engine):
    answer = make_engine(on_off_topic="base").answer(OFF_TOPIC)
    assert (answer.is_refusal, answer.mode) == (False, AnswerMode.BASE)
    assert answer.text == make_engine().answer(OFF_TOPIC, mode="base").text != REFUSAL
    assert "off the topic" in answer.reasons[0]


def test_a_refusal_shows_the_nearest_candidates(make_engine):
    answer = make_engine().answer(OFF_TOPIC)
    embedder = HashingEmbedder()
    cosines = embedder.embed_documents(TEXTS) @ embedder.embed_query(OFF_TOPIC)
    nearest = [TEXTS[i] for i in np.argsort(-cosines, kind="stable")[:3]]
    assert list(answer.nearest.texts) == nearest
    record = answer.as_dict()["nearest"]
    assert [one["text"] for one in record] == nearest
    assert set(record[0]) == {"document_id", "similarity", "text", "metadata"}
    assert make_engine().answer(ON_TOPIC, mode="context").nearest is None


def test_an_answer_says_what_its_choice_left_out(make_engine):
    """Three of four texts are one text: two of them are left out as its copies."""
    texts = [*[f"The shelf 1 holds books on cats{end}" for end in (".", "!", " .")], "Boats sail."]
    engine = make_engine(texts, options=ChoiceOptions(n_select=2))
    answer = engine.answer("Which books does the shelf 1 hold?", mode="context")
    assert [(one.reason, one.rank) for one in answer.left_out] == [("near_copy", 1)] * 2
    assert [one["reason"] for one in answer.as_dict()["left_out"]] == ["near_copy"] * 2


@pytest.mark.parametrize("mode", ["base", "context", "fine_tune", "both"])
def test_a_mode_that_was_asked_for_is_taken(make_engine, mode):
    answer = make_engine().answer(OFF_TOPIC, mode=mode)
    assert (answer.is_refusal, answer.mode.value) == (False, mode)


def test_without_candidates_nothing_is_on_the_topic(make_engine):
    nothing = {"filter": lambda metadata: False}
    answer = make_engine().answer(ON_TOPIC, **nothing)
    assert (answer.text, answer.reasons) == (REFUSAL, ("there is no candidate",))
    assert not make_engine().answer(ON_TOPIC, mode="context", **nothing).is_refusal
