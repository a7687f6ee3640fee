"""The answer engine over a small random language model and a real (small) store."""

import asyncio
import math
from dataclasses import replace

import numpy as np
import pytest

from sift_core import (
    AnswerMode,
    ChoiceOptions,
    InvalidInputError,
)
from sift_core.answering import AnswerEngine, AnswerRequest, LearningOptions
from sift_core.types import CandidatePool, Query
from tests.engines import engine_of

QUESTION = "How do I read the rows of a table?"
TEXTS = [
    f"reader.{verb}_rows(table, limit={n})\n\n{verb.title()} the rows of a table and return a "
    f"list with one dictionary a row, at most {n} of them."
    for verb in ("read", "copy", "sort", "count", "print", "delete")
    for n in range(5)
]
PASSAGE = (
    "reader.merge_rows(table, limit=7)\n\nMerge the rows of a table and return a list with one "
    "dictionary a row, at most 7 of them."
)


class CountingSource:
    """A source that counts its fetches, or fails like a store that is down."""

    def __init__(self, source, error=None):
        self.source, self.error, self.n_fetched = source, error, 0

    def fetch(self, query, n_candidates, *, filter=None):
        self.n_fetched += 1
        if self.error is not None:
            raise self.error
        return self.source.fetch(query, n_candidates, filter=filter)


@pytest.fixture
def make_engine(small_lm):
    def make(texts=TEXTS, error=None, **options):
        metadata = [{"verb": text.split(".")[1].split("_")[0]} for text in texts]
        settings = {"n_steps": 10, "max_new_tokens": 8, **options}
        engine = engine_of(small_lm, texts, metadata=metadata, **settings)
        return replace(engine, source=CountingSource(engine.source, error))

    return make


def test_from_pretrained_reads_a_folder(random_model, make_engine):
    parts = {"source": make_engine().source, "embedder": make_engine().embedder}
    engine = AnswerEngine.from_pretrained(
        random_model,
        **parts,
        learning=LearningOptions(n_steps=2),
        generation={"max_new_tokens": 4},
    )
    assert engine.answer(QUESTION, mode="context").mode is AnswerMode.CONTEXT


@pytest.mark.parametrize("mode", ["base", "context", "fine_tune", "both"])
def test_each_mode_answers_and_says_what_it_used(make_engine, mode):
    engine = make_engine()
    answer = engine.answer(QUESTION, mode=mode)
    assert answer.mode.value == mode
    assert answer.reasons == ("it was asked for",)
    assert answer.timings["generate"] > 0
    n_used = {"base": 0, "context": 10, "fine_tune": 10, "both": 20}[mode]
    assert len(answer.chunks) == n_used
    assert answer.n_read == {"context": 10, "both": 10}.get(mode, 0)
    assert set(answer.chunks.texts) <= set(TEXTS)
    assert engine.source.n_fetched == (mode != "base")
    if mode == "base":
        assert math.isnan(answer.standard_deviation)
    else:
        assert 0 < answer.standard_deviation < 1


def test_fine_tuning_predicts_a_related_passage_better_than_the_base(make_engine):
    engine = make_engine(n_steps=30)
    bits = {}
    for mode in ("base", "context", "fine_tune", "both"):
        model = engine.prepare(engine.choose(QUESTION, mode=mode))
        bits[mode] = model.bits_per_byte(PASSAGE)
    assert bits["fine_tune"] < 0.95 * bits["base"]
    assert bits["both"] < 0.95 * bits["context"]
    assert len(set(bits.values())) == 4  # a tiny model need not profit from a context
    assert engine.language_model.bits_per_byte(PASSAGE) == bits["base"]  # nothing stays


def test_auto_reads_what_fits_and_learns_what_does_not(make_engine):
    short = make_engine().choose(QUESTION)
    assert short.mode is AnswerMode.CONTEXT
    assert "fit into" in short.reasons[1]
    long = make_engine(texts=[text * 60 for text in TEXTS], n_steps=2).choose(QUESTION)
    assert long.mode is AnswerMode.FINE_TUNE
    assert "exceed" in long.reasons[1]


def test_the_stores_own_scores_lead_the_choice_of_context(make_engine):
    engine = make_engine(options=ChoiceOptions(n_select=1))
    choice = engine.choose(QUESTION, mode="context")
    last = len(choice.pool) - 1
    scores = np.zeros(len(choice.pool))
    scores[last] = 1.0
    scored = replace(choice.pool, relevance=scores)
    assert choice.read.positions.tolist() != [last]
    again = engine.choose_from(choice.query, scored, mode="context")
    assert again.read.positions.tolist() == [last]


def test_several_queries_are_looked_for_in_place_of_the_question(make_engine):
    engine = make_engine(options=ChoiceOptions(n_select=4))
    queries = ["How do I merge rows?", "How do I sort rows?"]
    choice = engine.choose(QUESTION, mode="both", queries=queries)
    assert choice.query.text == QUESTION
    assert [one.text for one in choice.query.also] == queries[1:]
    for text, vector in zip(queries, choice.query.vectors, strict=True):
        alone = engine.choose(text, mode="context")
        assert vector.tolist() == alone.query.vector.tolist()
        first = alone.pool.document_ids[alone.read.positions[0]]
        assert first in choice.chunks(choice.read).document_ids
    counted = engine.source
    awaiting = replace(engine, source=counted.source)
    awaited = asyncio.run(awaiting.achoose(QUESTION, mode="both", queries=queries))
    called = awaiting.choose(QUESTION, mode="both", queries=queries)  # finds by words, too
    assert awaited.read.positions.tolist() == called.read.positions.tolist()
    answer = engine.answer_from(choice)
    assert 0 < answer.standard_deviation < 1
    with pytest.raises(InvalidInputError, match="`queries` must be a list or tuple"):
        engine.choose(QUESTION, queries="one text")


def test_a_filter_that_matches_nothing_leaves_the_model_alone(make_engine):
    answer = make_engine().answer(QUESTION, mode="fine_tune", filter=lambda m: False)
    assert answer.mode is AnswerMode.BASE
    assert answer.reasons == ("there is no candidate",)
    assert len(answer.chunks) == 0


def test_chunks_that_do_not_fit_are_not_reported_as_used(make_engine):
    answer = make_engine(texts=[text * 60 for text in TEXTS]).answer(QUESTION, mode="context")
    assert answer.mode is AnswerMode.BASE
    assert answer.reasons[-1] == "none of the chosen chunks fits into the window"
    assert len(answer.chunks) == 0
    assert math.isnan(answer.standard_deviation)


def test_a_request_is_what_its_fields_are_by_name(make_engine):
    engine = make_engine()
    history = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    asked = {"mode": "context", "history": history, "max_new_tokens": 6}
    request = AnswerRequest(question=QUESTION, generation={"min_new_tokens": 6}, **asked)
    whole = engine.answer(request)
    assert whole.text == engine.answer(QUESTION, min_new_tokens=6, **asked).text
    assert whole.n_new_tokens == 6
    assert engine.answer(request, max_new_tokens=8, min_new_tokens=8).n_new_tokens == 8
    assert "".join(engine.stream(request)) == whole.text
    assert engine.session(request).answer(QUESTION).text == whole.text  # generated alike


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"question": ""}, "question is empty"),
        ({"question": "  \n"}, "question is empty"),
        ({"question": "odd \udce9"}, "UTF-8 cannot hold"),
        ({"mode": "guess"}, r"'base', 'context', .* got 'guess'"),
        ({"latency_s": 0}, "latency_s"),
        ({"latency_s": 10**400}, "latency_s"),
        ({"generation": 3}, "`generation` must be a mapping"),
        ({"latency_s": float("inf")}, "latency_s"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"history": "Hi"}, "history"),
        ({"generation": {"max_new_tokens": 3}}, "must not hold `max_new_tokens`"),
    ],
    ids=str,
)
def test_a_request_that_cannot_be_is_refused(make_engine, options, message):
    with pytest.raises(InvalidInputError, match=message):
        make_engine().answer(**{"question": QUESTION, **options})


ODD_OPTIONS = [
    ({"temprature": 1.0}, "no option `temprature` .* did you mean `temperature`"),
    ({"lattency_s": 3}, "did you mean `latency_s`"),
    ({"n_context": 2}, "no option `n_context` of a choice or .* did you mean `n_select`"),
    ({"top_n": 2}, "did you mean `n_select`"),
    ({"fetch_k": 2}, "did you mean `n_candidates`"),
    ({"n_candidate": 2}, "did you mean `n_candidates`"),
    ({"temperature": 0.5}, "`temperature` is for sampling, got 0.5 .* pass `do_sample=True`"),
    ({"top_p": 0.5}, "`top_p` is for sampling"),
    ({"top_k": 5}, "`top_k` is for sampling"),
    ({"prefix": None}, "no option `prefix`"),
    ({"attention_mask": None}, "no option `attention_mask`"),
    ({"assistant_early_exit": 1}, "no option `assistant_early_exit`"),
    ({"stop": 3}, "`stop` must be a sequence"),
    ({"stop": [""]}, "must not hold an empty text"),
    ({"num_beams": 0}, "`num_beams` must be >= 1"),
    ({"do_sample": True, "temperature": math.nan}, "temperature"),
    ({"do_sample": True, "top_p": 2.0}, "top_p"),
    ({"do_sample": True, "top_k": "x"}, "top_k"),
    ({"repetition_penalty": -1.0}, "penalty"),
]


@pytest.mark.parametrize(("options", "message"), ODD_OPTIONS, ids=str)
def test_an_option_that_cannot_be_is_refused_before_any_work(make_engine, options, message):
    engine = make_engine()
    engine = replace(engine, source=CountingSource(engine.source))
    chosen = engine.choose(QUESTION, mode="fine_tune")
    steps = []

    def attempts():
        yield lambda: engine.answer(QUESTION, mode="fine_tune", **options)
        yield lambda: asyncio.run(engine.aanswer(QUESTION, **options))
        yield lambda: engine.stream(QUESTION, **options)
        yield lambda: asyncio.run(engine.astream(QUESTION, **options))
        yield lambda: engine.session(QUESTION, on_step=steps.append, **options)
        yield lambda: engine.choose_from(chosen.query, chosen.pool, **options)
        yield lambda: engine.answer_from(chosen, on_step=steps.append, **options)
        yield lambda: engine.stream_from(chosen, **options)
        yield lambda: replace(engine, generation=options)

    for attempt in attempts():
        with pytest.raises(InvalidInputError, match=message):
            attempt()
    assert (engine.source.n_fetched, steps) == (1, [])


def test_settings_of_sampling_that_change_nothing_are_taken_without_it(make_engine):
    engine = make_engine()
    expected = engine.answer(QUESTION, mode="base").text
    for options in ({"temperature": 0}, {"temperature": 1.0, "top_p": 1.0, "top_k": 0}):
        assert engine.answer(QUESTION, mode="base", **options).text == expected
    hot = {"temperature": 0.5, "do_sample": False}  # as its caller says
    assert engine.answer(QUESTION, mode="base", **hot).text == expected


class Nameless:
    """An embedder that somebody wrote after the two methods alone."""

    def embed_query(self, text):
        raise AssertionError

    embed_documents = embed_query


@pytest.mark.parametrize(
    ("embedder", "message"),
    [
        (Nameless(), "a Nameless has no `name`; .* `name` is the model's"),
        (object(), "has no `name` and no `embed_query` and no `embed_documents`"),
        ("all-MiniLM-L6-v2", "a str has no `name`"),
        (type("Numbered", (Nameless,), {"name": 5})(), "`embedder.name` must be a string, got int"),
    ],
)
def test_what_is_no_embedder_is_refused_at_once(make_engine, embedder, message):
    with pytest.raises(InvalidInputError, match=message):
        replace(make_engine(), embedder=embedder)


def test_a_question_in_place_of_a_query_is_refused_with_the_way_to_make_one(make_engine):
    engine = make_engine()
    pool = engine.choose(QUESTION, mode="context").pool
    with pytest.raises(InvalidInputError, match=r"got 'what\?'; pass `Query\(text=…, embedding"):
        engine.choose_from("what?", pool)


@pytest.mark.parametrize("name", ["on_text", "on_step"])
def test_streams_say_that_they_take_no_listeners(make_engine, name):
    engine = make_engine()
    chosen = engine.choose(QUESTION, mode="context")
    listener = {name: print}
    for attempt in (
        lambda: engine.stream(QUESTION, **listener),
        lambda: asyncio.run(engine.aanswer(QUESTION, **listener)),
        lambda: engine.stream_from(chosen, **listener),
        lambda: asyncio.run(engine.aanswer_from(chosen, **listener)),
        lambda: engine.prepare(chosen).stream(QUESTION, **listener),
    ):
        with pytest.raises(InvalidInputError, match=f"no .*{name}.* here"):
            attempt()


def test_a_pool_at_hand_is_not_filtered_and_a_query_has_its_history(make_engine):
    engine = make_engine()
    chosen = engine.choose(QUESTION, mode="context")
    with pytest.raises(InvalidInputError, match=r"takes no \['filter', 'history'\]"):
        engine.choose_from(chosen.query, chosen.pool, filter={}, history=[])


def test_what_an_engine_cannot_use_is_refused_at_once(make_engine):
    for name, wrong, message in (
        *[("max_new_tokens", odd, "`max_new_tokens` must be") for odd in (None, 0, "x")],
        *[("n_steps", odd, "`n_steps` must be") for odd in (0, "x", 1.5)],
        ("policy", object(), "a policy's `on_off_topic` must be"),
        ("options", ChoiceOptions(n_select=2_000_000), "`n_select` must be <= 1000000"),
        ("n_steps", 2_000_000, "`n_steps` must be <= 1000000"),
        ("selector", "nearest", "`selector` must have a method `select`"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            make_engine(**{name: wrong})
    for wrong in (3, {3: 1}):
        with pytest.raises(InvalidInputError, match="`generation` must be a mapping"):
            replace(make_engine(), generation=wrong)


@pytest.mark.parametrize("wrong", ["text", None, 5, ["x"]], ids=repr)
def test_candidates_at_hand_need_a_query_and_a_pool(small_lm, wrong):
    engine = engine_of(small_lm, ["a shelf", "a boat"])
    pool = CandidatePool.empty(dimension=3)
    with pytest.raises(InvalidInputError, match="`query` must be of the class Query"):
        engine.choose_from(wrong, pool)
    with pytest.raises(InvalidInputError, match="`pool` must be of the class CandidatePool"):
        engine.choose_from(Query(text="x"), wrong)
