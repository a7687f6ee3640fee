"""Mode "learned": what was learned of the collection beforehand, which nobody else sees."""

import math

import numpy as np
import pytest

from sift_core import (
    AnswerMode,
    CandidatePool,
    ChoiceOptions,
    InMemorySource,
    InvalidInputError,
    Query,
)
from sift_core.answering import FineTuningSettings, learn_collection
from sift_core.testing import HashingEmbedder
from tests.answering.plain_peft import lora
from tests.engines import changed, engine_of

FAST = FineTuningSettings(lora=lora(8), learning_rate=1e-2)
TOPICS = ("dogs bark", "cows moo", "hens peck")
TEXTS = [f"{topic} number {n}" for topic in TOPICS for n in range(4)]
QUESTIONS = [f"{topic}?" for topic in TOPICS]


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
        adapter = learn_collection(lm, sample, tmp_path / shape, settings=FAST)
        learning = {"n_steps": 3, "settings": FAST, "cache": None, "adapter": adapter}
        over = {"source": source, "embedder": embedder, "options": ChoiceOptions(n_select=1)}
        return engine_of(lm, max_new_tokens=6, **{**over, **learning, **options})

    return make


def test_an_answer_rests_on_what_was_learned_and_nothing_is_fetched(make_engine):
    engine = make_engine(source=Uncalled(), embedder=None)
    answer = engine.answer(QUESTIONS[0], mode="learned")
    assert answer.mode is AnswerMode.LEARNED
    assert answer.reasons == ("it was asked for",)
    assert answer.timings.keys().isdisjoint({"fetch", "fine_tune"})
    assert (len(answer.chunks), answer.n_read, answer.fine_tuning) == (0, 0, None)
    assert math.isnan(answer.standard_deviation)
    session = engine.session(QUESTIONS[0], mode="learned")
    for text in TEXTS[::4]:
        assert session.bits_per_byte(text) < engine.language_model.bits_per_byte(text) - 0.1


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
        answer = engine.answer_from(engine.choose_from(query, pool, mode="learned"))
        assert answer.mode is AnswerMode.LEARNED
        assert not len(answer.chunks)


def test_what_cannot_be_merged_is_refused_before_any_work(make_engine):
    engine = make_engine()
    with pytest.raises(InvalidInputError, match="needs an adapter"):
        changed(engine, adapter=None).answer(QUESTIONS[0], mode="learned")


def test_chunks_are_read_with_what_was_learned(make_engine):
    engine = make_engine()
    answer = engine.answer(QUESTIONS[0], mode="learned_context")
    assert (answer.mode, answer.n_read) == (AnswerMode.LEARNED_CONTEXT, 1)
    assert answer.fine_tuning is None
    session = engine.session(QUESTIONS[0], mode="learned_context")
    read = engine.session(QUESTIONS[0], mode="context")
    for text in TEXTS[1::4]:
        assert session.bits_per_byte(text) < read.bits_per_byte(text) - 0.1


def test_with_nothing_to_read_there_is_what_was_learned(make_engine):
    query = Query(text=QUESTIONS[0], embedding=HashingEmbedder().embed_query(QUESTIONS[0]))
    choice = make_engine().choose_from(query, CandidatePool.empty(), mode="learned_context")
    assert choice.mode is AnswerMode.LEARNED
