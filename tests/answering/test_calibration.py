# ruff: noqa: RUF001
"""Which way is best for a collection: what is measured, what follows of it, what is kept."""

from dataclasses import replace

import numpy as np
import pytest

from sift_core import (
    AnswerMode,
    CandidateSourceError,
    ChoiceOptions,
    InMemorySource,
    InvalidInputError,
    choose,
)
from sift_core.answering import AdapterCache, CostModel, LearningOptions, Strategy, calibrate
from sift_core.answering.calibration import (
    Calibration,
    Example,
    MeasuredExample,
    Measurer,
    held_back_examples,
)
from sift_core.answering.in_context import InContextAnswerer
from sift_core.files import seal, unseal
from tests.answering.plain_peft import assert_same_state, state_of
from tests.engines import engine_of

BASE, CONTEXT, LEARN = (Strategy(AnswerMode(mode)) for mode in ("base", "context", "fine_tune"))
WORDS = "shelf book lamp river stone train bridge letter window garden clock paper".split()
COSTS = CostModel(
    prefill=((10, 0.1), (20, 0.2)),
    adapted_prefill=((10, 0.1), (20, 0.2)),
    step=((10, 0.3), (20, 0.5)),
    new_token_s=0.01,
    adapted_new_token_s=0.01,
    setup_s=0.1,
)


def passage(n):
    drawn = np.random.default_rng(n).choice(WORDS, size=50)
    return f"Passage {n}: " + " ".join(f"{word} {n * i % 7}" for i, word in enumerate(drawn))


PASSAGES = [passage(n) for n in range(40)]
ASKED = [(f"What is in passage {n}?", f"The {WORDS[n]} of it") for n in range(12)]


@pytest.fixture
def make_engine(small_lm):
    usual = {"options": ChoiceOptions(n_select=3, n_candidates=8), "n_steps": 2}
    return lambda texts=PASSAGES, **options: engine_of(small_lm, texts, **usual | options)


def calibrated(engine, **options):
    """Calibrate for an engine."""
    own = {"options": engine.options, "learning": engine.learning, "cost_model": COSTS}
    return calibrate(engine.language_model, engine.source, engine.embedder, **own | options)


def measured(engine, example, strategies, source=None):
    measurer = Measurer(
        source=source or engine.source,
        embedder=engine.embedder,
        answerer=InContextAnswerer(language_model=engine.language_model),
        options=engine.options,
        learning=engine.learning,
    )
    return measurer.measure(example, strategies)


BITS = [(2.0, 1.0, 1.5), (2.0, 1.1, 1.4)] * 10


def calibration(bits, model=None):
    """Return one of n examples with three strategies."""
    return Calibration(
        strategies=(BASE, CONTEXT, LEARN),
        examples=tuple(
            MeasuredExample(
                bits_per_byte=tuple(row),
                seconds=(0.1,) * len(row),
                question_tokens=n,
            )
            for n, row in enumerate(bits, 10)
        ),
        cost_model=COSTS,
        model="" if model is None else model.name,
        fingerprint="" if model is None else model.fingerprint,
        machine="another one",
    )


def test_every_strategy_is_measured_as_the_engine_answers(make_engine):
    """By hand: the same documents, read or learned, and the same text scored after them."""
    engine = make_engine(cache=None)
    text, others = PASSAGES[8], [*PASSAGES[:8], *PASSAGES[9:]]
    middle = text.find(" ", len(text) // 2)
    question, answer = text[:middle], text[middle:]
    example = Example(question=question, answer=answer, held_back="8")
    strategies = engine.learning.strategies(with_learned=False)
    names = ["base", "context", "fine_tune, 2 steps", "both, 2 steps"]
    assert list(map(str, strategies)) == names
    found = measured(engine, example, strategies)
    without = make_engine(others)  # the passage is not there, and nothing else repeats it
    query = without.choose(question, mode="context").query
    pool = without.source.fetch(query, 8)
    for strategy, bits in zip(strategies, found.bits_per_byte, strict=True):
        session = without.prepare(without.choose_from(query, pool, mode=strategy.mode))
        assert session.bits_per_byte(answer, opening=question) == pytest.approx(bits, rel=1e-4)
    assert len(set(found.bits_per_byte)) == 4
    assert min(found.seconds) > 0
    assert found.question_tokens == engine.language_model.n_tokens(question) + 1


def test_an_answer_is_scored_behind_the_prompt_of_its_question(make_engine):
    engine = make_engine()  # calibration fetches by vectors alone
    engine = replace(engine, options=replace(engine.options, words=0))
    question, answer = ASKED[3]
    found = measured(engine, Example(question=question, answer=answer), (BASE, CONTEXT))
    for strategy, bits in zip((BASE, CONTEXT), found.bits_per_byte, strict=True):
        choice = engine.choose(question, mode=strategy.mode)
        model, answerer = engine.language_model, engine.prepare(choice).answerer
        prompt = answerer.prompt_for(choice.query, choice.chunks(choice.read))
        nats = model.bits_per_byte(answer, lead=model.prompt_ids(prompt))
        assert bits == pytest.approx(nats)


def test_no_candidate_tells_the_answer(make_engine, monkeypatch):
    """Neither the passage itself, nor its copy under another id, nor one that has a part of it."""
    text = PASSAGES[3]
    middle = text.find(" ", len(text) // 2)
    part = f"Another beginning. {text[middle : middle + 150]}"
    engine = make_engine([text, text, part, *PASSAGES[10:20]])
    example = Example(question=text[:middle], answer=text[middle:], held_back="0")
    seen = []

    def watch(pool, *arguments, **options):
        seen.extend(pool.texts)
        return choose(pool, *arguments, **options)

    monkeypatch.setattr("sift_core.answering.calibration.choose", watch)
    measured(engine, example, (BASE,))
    assert seen
    assert not {text, part} & set(seen)
    seen.clear()
    measured(engine, replace(example, held_back=None), (BASE,))
    assert seen.count(text) == 2  # of what is not of the collection all is found
    alone = make_engine([text, text])
    assert measured(alone, example, (BASE,)) is None


def test_passages_are_drawn_and_halved(make_engine):
    source = make_engine([*PASSAGES, "too short to be halved", "x" * 400]).source
    drawn = list(held_back_examples(source, 40, seed=3))
    assert len(drawn) == 40  # neither the short one nor the one without a place to cut
    for one in drawn:
        assert one.question + one.answer == PASSAGES[int(one.held_back)]
        assert len(one.question) == pytest.approx(len(one.answer), abs=20)
    assert list(held_back_examples(source, 40, seed=3)) == drawn


@pytest.mark.parametrize("sentence", ["图书馆{}点开门，请提前预约。", "{}กลุ่มใหญ่ต้องจองล่วงหน้า"])
def test_passages_without_spaces_are_halved(make_engine, sentence):
    texts = ["".join(sentence.format(n * m) for m in range(9)) for n in range(10, 30)]
    drawn = list(held_back_examples(make_engine(texts).source, 20, seed=3))
    assert len(drawn) == 20
    for one in drawn:
        assert one.question + one.answer == texts[int(one.held_back)]
        assert len(one.question) == pytest.approx(len(one.answer), abs=30)


@pytest.mark.slow
def test_a_collection_is_calibrated_and_the_model_left_as_it_was(make_engine, tmp_path):
    engine = make_engine(cache=AdapterCache(folder=tmp_path))
    before = state_of(engine.language_model)
    seen = []
    found = calibrated(engine, n=8, on_example=seen.append)
    assert [len(one.examples) for one in seen] == list(range(1, 9))
    assert seen[-1] == found
    assert found.bits_per_byte.shape == found.seconds.shape == (8, 4)
    assert found.strategies[0] == BASE
    assert found.cost_model is COSTS
    assert_same_state(engine.language_model, before)
    assert not list(tmp_path.rglob("*"))
    again = calibrated(engine, n=8)
    assert (again.bits_per_byte == found.bits_per_byte).all()
    assert found.policy.cost_model is COSTS
    found.save(tmp_path / "it")  # on the same machine its seconds hold
    assert Calibration.load(tmp_path / "it", engine.language_model) == found
    choice = make_engine(policy=found.policy).choose(PASSAGES[0])
    assert "on 8 examples of the calibration" in "; ".join(choice.reasons)


def test_efforts_up_to_the_given_one_are_measured():
    found = LearningOptions(effort="balanced").strategies(with_learned=True)
    learning = [f"{mode}, {n} steps" for n in (5, 12) for mode in ("fine_tune", "both")]
    assert list(map(str, found)) == ["base", "context", *learning]


@pytest.mark.slow
def test_what_ends_it_early(make_engine):
    with pytest.raises(InvalidInputError, match=r"8 examples; 1e-05 minutes were over after 1\."):
        calibrated(make_engine(), minutes=1e-5)
    with pytest.raises(InvalidInputError, match="no more passages could be used after 5"):
        calibrated(make_engine(PASSAGES[:5]))

    def stop(found):
        if len(found.examples) == 2:
            raise KeyboardInterrupt

    engine = make_engine()
    before = state_of(engine.language_model)
    with pytest.raises(KeyboardInterrupt):
        calibrated(engine, on_example=stop)
    assert_same_state(engine.language_model, before)


class Dying(InMemorySource):
    """A store that dies in the middle."""

    n_fetched = 0

    def fetch_batch(self, *arguments, **options):
        self.n_fetched += 1
        if self.n_fetched > 3:
            raise CandidateSourceError("the store is gone")
        return super().fetch_batch(*arguments, **options)


def test_a_store_that_dies_is_reported_and_what_was_measured_is_not_lost(make_engine):
    engine = make_engine()
    source = Dying(engine.embedder.embed_documents(PASSAGES), PASSAGES)
    seen = []
    with pytest.raises(CandidateSourceError, match="the store is gone"):
        calibrated(replace(engine, source=source), on_example=seen.append)
    assert len(seen[-1].examples) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 7}, "`n` must be >= 8"),
        ({"minutes": 0}, "`minutes`"),
        ({"minutes": float("nan")}, "`minutes`"),
        ({"questions": ASKED[:7]}, "at least 8 pairs .* got 7"),
        ({"questions": [*ASKED, "why?"]}, "pairs of question and answer, got 'why\\?'"),
        ({"questions": [*ASKED, ("why?", " ")]}, "the answer to 'why\\?' is empty"),
        ({"questions": [*ASKED, ("", "so")]}, "the question is empty"),
        ({"questions": [*ASKED, ("why?", 3)]}, "`answer` must be a string, got int"),
        ({"questions": [*ASKED, ("why?", "odd \udce9")]}, "UTF-8 cannot hold"),
    ],
)
def test_what_cannot_be_used_is_refused_before_any_work(make_engine, options, message):
    with pytest.raises(InvalidInputError, match=message):
        calibrated(make_engine(), cost_model=None, **options)


@pytest.mark.slow
def test_a_source_that_cannot_draw_documents_needs_questions(make_engine):
    engine = make_engine()

    class OnlyFetches:
        fetch = engine.source.fetch

    with pytest.raises(InvalidInputError, match="OnlyFetches cannot draw documents"):
        calibrated(replace(engine, source=OnlyFetches()))
    only = calibrated(replace(engine, source=OnlyFetches()), n=8, questions=ASKED)
    assert len(only.examples) == 8


@pytest.mark.parametrize(
    ("bits", "order"),
    [
        # means 2, 1, 1.5: nothing is better than reading
        ([(2.0, 1.0, 1.5), (2.0, 1.0, 1.5)] * 4, [CONTEXT, LEARN, BASE]),
        # learning and nothing are better by chance alone
        ([(0.6, 1.0, 0.5), (1.2, 1.0, 1.4)] * 4, [CONTEXT, BASE, LEARN]),
        # learning is better each time
        ([(2.0, 1.0, 0.9), (2.0, 1.0, 0.8)] * 4, [LEARN, CONTEXT, BASE]),
        # base is worse by less than .2 % of itself, and quicker
        ([(1.001, 2.0, 1.0), (1.001, 2.1, 1.0)] * 4, [BASE, LEARN, CONTEXT]),
    ],
)
def test_reading_is_left_for_what_is_better_for_certain(bits, order):
    found = calibration(bits)
    seconds = (0.1, 0.2, 0.3)
    found = replace(found, examples=tuple(replace(e, seconds=seconds) for e in found.examples))
    assert list(found.policy.saved) == order
    base, *_, learn = np.mean(bits, axis=0)
    assert found.policy.saved[LEARN] == pytest.approx(1 - learn / base)


def test_a_calibration_is_kept_beside_the_index(small_lm, tmp_path):
    found = calibration(BITS, model=small_lm)
    path = tmp_path / "calibration.json"
    found.save(path)
    found.save(path)  # in place of the other
    loaded = Calibration.load(path, small_lm)
    assert loaded == replace(found, cost_model=None)  # seconds of another machine are no use
    assert loaded.policy == replace(found.policy, cost_model=None)
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


SPOILT = {
    "deep": lambda text: "[" * 10**5,
    "no text": lambda text: b"\xff\xfe",
    "another number": lambda text: text.replace("0.1", "0.2", 1),
    "of another version": lambda text: resealed(text, format=99),
    "another mode": lambda text: resealed(text, strategies=[{"mode": "guess", "n_steps": 0}]),
    "no examples": lambda text: resealed(text, examples=3),
    "an empty list of examples": lambda text: resealed(text, examples=[]),
    "a list": lambda text: seal([], "calibration"),
    "nan": lambda text: text_with(text, bits_per_byte=[float("nan")] * 3),
    "too few numbers": lambda text: text_with(text, seconds=[1.0]),
    "a text": lambda text: text_with(text, bits_per_byte=["x"] * 3),
    "endless": lambda text: text_with(text, question_tokens=float("inf")),
    "without reading": lambda text: resealed(text, strategies=[{"mode": "base", "n_steps": 0}] * 3),
}


def text_with(text, **changes):
    """Return a file whose checksum fits and whose first example is changed."""
    examples = unseal(text.encode(), "calibration")["examples"]
    return resealed(text, examples=[{**examples[0], **changes}, *examples[1:]])


def resealed(text, **changes):
    content = unseal(text.encode(), "calibration")
    return seal({**content, **changes}, "calibration")


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_a_spoilt_file_is_reported(small_lm, tmp_path, spoil):
    path = tmp_path / "it"
    calibration(BITS, model=small_lm).save(path)
    content = spoil(path.read_text(encoding="utf-8"))
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InvalidInputError, match=r"is of no use: .*calibrate again"):
        Calibration.load(path, small_lm)


def test_one_that_is_not_there_or_of_another_model_is_refused(make_random_lm, small_lm, tmp_path):
    with pytest.raises(InvalidInputError, match="make one: sift calibrate"):
        Calibration.load(tmp_path / "none", small_lm)
    calibration(BITS, model=make_random_lm()).save(tmp_path / "it")
    with pytest.raises(InvalidInputError, match=r"was made with .* use that model"):
        Calibration.load(tmp_path / "it", small_lm)
    with pytest.raises(InvalidInputError, match="could not be written"):
        calibration(BITS, model=small_lm).save(tmp_path / "no" / "folder")
