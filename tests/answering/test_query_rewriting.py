"""What is searched for where a question follows others."""

import asyncio
import threading
from dataclasses import replace

import pytest

from sift_core import (
    AnswerError,
    ChoiceOptions,
    InvalidInputError,
    NearestNeighborSelector,
)
from sift_core.answering.model.generation import Generation
from sift_core.answering.query_rewriting import MOST_TOKENS, N_CHARACTERS
from sift_core.errors import NumericalError
from tests.engines import engine_of

TEXTS = [
    "To create a row add it to the session of the database.",
    "To delete a row call delete of the session of the database.",
    *(f"Release {n}: a deletion of an old function, and fixes." for n in range(8)),
]
FIRST, FOLLOW_UP = "How do I create a row in the database?", "And how for a deletion?"
HISTORY = [{"role": "user", "content": FIRST}, {"role": "assistant", "content": "Add it."}]
JOINED = (f"{FOLLOW_UP} {FIRST}", FOLLOW_UP)


class Writing:
    """A generator that writes what it is given, and keeps what it was asked."""

    def __init__(self, *texts, finish_reason="stop"):
        self.texts, self.reason, self.asked = [*texts], finish_reason, []

    def generate(self, prompt, *, max_new_tokens, on_text=None, **options):
        self.asked.append((prompt, max_new_tokens, options))
        text = self.texts.pop(0) if self.texts else "An answer."
        if on_text is not None:
            on_text(text)
        return Generation(text=text, n_prompt_tokens=1, n_new_tokens=1, finish_reason=self.reason)


@pytest.fixture
def make_engine(small_lm):
    usual = {"options": ChoiceOptions(n_select=2), "n_steps": 2, "max_new_tokens": 4}
    return lambda **options: engine_of(small_lm, TEXTS, **usual | options)


def searched_for(engine, question=FOLLOW_UP, history=HISTORY, **options):
    return engine.choose(question, history=history, mode="context", **options).searched_for


def texts_read(choice):
    return [choice.pool.texts[i] for i in choice.read.positions]


def test_a_follow_up_finds_what_the_question_before_it_was_about(make_engine):
    bare = make_engine(query_rewriting=None).choose(FOLLOW_UP, history=HISTORY, mode="context")
    assert all(text.startswith("Release") for text in texts_read(bare))
    choice = make_engine().choose(FOLLOW_UP, history=HISTORY, mode="context")
    assert set(texts_read(choice)) & set(TEXTS[:2])
    assert (bare.searched_for, choice.searched_for) == ((FOLLOW_UP,), JOINED)
    assert choice.query.text == FOLLOW_UP  # what the model is asked


def test_every_way_to_ask_says_what_was_searched_for(make_engine):
    engine = make_engine()
    asked = {"history": HISTORY, "mode": "context"}

    async def awaited():
        async with await engine.astream(FOLLOW_UP, **asked) as stream:
            streamed = await stream.answer()
        session = await engine.asession(FOLLOW_UP, **asked)
        return [await engine.aanswer(FOLLOW_UP, **asked), streamed, await session.aanswer("So?")]

    with engine.stream(FOLLOW_UP, **asked) as stream:
        answers = [engine.answer(FOLLOW_UP, **asked), stream.answer(), *asyncio.run(awaited())]
    assert [one.searched_for for one in answers] == [JOINED] * 5
    assert all("rewrite" in one.timings for one in answers[:4])


@pytest.mark.parametrize(
    "history",
    [
        [],
        [{"role": "system", "content": "Be short."}],
        [{"role": "assistant", "content": "Hello!"}],
        [{"role": "user", "content": "  "}, {"role": "assistant", "content": "Yes?"}],
    ],
    ids=["none", "system", "greeting", "empty"],
)
def test_without_a_question_before_it_a_question_stands_alone(make_engine, history):
    choice = make_engine().choose(FOLLOW_UP, history=history, mode="context")
    assert (choice.searched_for, "rewrite" in choice.timings) == ((FOLLOW_UP,), False)


@pytest.mark.parametrize(
    "one_query",
    [
        {"options": ChoiceOptions(selector=NearestNeighborSelector())},
        {"selector": NearestNeighborSelector()},
    ],
    ids=["context", "fine-tuning"],
)
def test_a_selector_of_one_query_has_the_joined_text(make_engine, one_query):
    engine = make_engine(**one_query)
    answer = engine.answer(FOLLOW_UP, mode="both", history=HISTORY, max_new_tokens=2)
    assert answer.searched_for == JOINED[:1]


def test_queries_go_before_it_and_base_mode_looks_for_nothing(make_engine):
    def never(history, question):
        raise AssertionError

    engine = make_engine(query_rewriting=never)
    assert searched_for(engine, queries=["a", "b"]) == ("a", "b")
    assert engine.answer(FOLLOW_UP, history=HISTORY, mode="base").searched_for == ()
    query = replace(engine.choose("a").query, history=HISTORY)
    at_hand = engine.choose_from(query, engine.choose("a").pool, mode="context")
    assert at_hand.searched_for == ()


def test_the_model_writes_what_is_searched_for(make_engine, small_lm):
    end = small_lm.tokenizer.all_special_tokens[0]
    generator = Writing(f' "How do I delete a row in the database?"{end} ')
    engine = make_engine(query_rewriting="model", generator=generator)
    answer = engine.answer(FOLLOW_UP, history=HISTORY, mode="context")
    assert answer.searched_for == ("How do I delete a row in the database?",)
    prompt, n_new, options = generator.asked[0]
    assert (n_new, options["stop"]) == (MOST_TOKENS, ["\n"])
    assert prompt[-1]["content"] == f"User: {FIRST}\nAssistant: Add it.\nUser: {FOLLOW_UP}"
    assert len(generator.asked) == 2  # the second wrote the answer


@pytest.mark.parametrize(
    ("text", "reason"),
    [("", "stop"), ("\x1b[31m", "stop"), ("Yes, that is it.", "stop"), ("database", "length")],
    ids=["empty", "controls", "nothing of it", "cut"],
)
def test_what_a_model_cannot_mean_gives_way_to_the_joined_text(make_engine, text, reason):
    engine = make_engine(query_rewriting="model", generator=Writing(text, finish_reason=reason))
    assert searched_for(engine) == JOINED


def test_texts_without_latin_letters_are_told_apart_too(make_engine):
    history = [{"role": "user", "content": "如何在数据库中创建一行?"}]
    generator = Writing("如何在数据库中删除一行?", "我很抱歉。")
    engine = make_engine(query_rewriting="model", generator=generator)
    assert searched_for(engine, "怎么删除?", history) == ("如何在数据库中删除一行?",)
    joined = f"怎么删除? {history[0]['content']}"
    assert searched_for(engine, "怎么删除?", history) == (joined, "怎么删除?")


def test_the_model_itself_writes_one_plain_line(make_engine):
    engine = make_engine(query_rewriting="model")
    first = searched_for(engine)
    assert first == searched_for(engine)  # greedy
    assert first == asyncio.run(engine.achoose(FOLLOW_UP, history=HISTORY)).searched_for
    assert all(text.isprintable() for text in first)


def test_long_turns_are_clipped_and_too_many_left_out(make_engine):
    generator = Writing("How do I delete a row in the database?")
    engine = make_engine(query_rewriting="model", generator=generator)
    turn = [{"role": "user", "content": "row " * 5000}, {"role": "assistant", "content": "Yes."}]
    assert len(searched_for(engine, history=[*turn * 9, *HISTORY])) == 1
    chat = generator.asked[0][0][-1]["content"]
    assert chat.count("User: ") == 4
    assert len(chat) < 3 * N_CHARACTERS


def test_a_window_without_room_for_the_task_gives_way_to_the_joined_text(
    make_engine, make_random_lm
):
    engine = replace(make_engine(query_rewriting="model"), language_model=make_random_lm())
    assert searched_for(engine, max_new_tokens=2) == JOINED


@pytest.mark.parametrize("said", ["rows", ["rows", "deletions"], ("rows",)])
def test_a_function_says_what_is_searched_for(make_engine, said):
    asked = []

    def rewrite(history, question):
        asked.append((list(history), question, threading.get_ident()))
        return said

    engine = make_engine(query_rewriting=rewrite)
    expected = (said,) if isinstance(said, str) else tuple(said)
    assert searched_for(engine) == expected
    assert asyncio.run(engine.achoose(FOLLOW_UP, history=HISTORY)).searched_for == expected
    assert [one[:2] for one in asked] == [(HISTORY, FOLLOW_UP)] * 2
    assert asked[0][2] == threading.get_ident() != asked[1][2]  # the loop is not blocked


@pytest.mark.parametrize("said", ["", " ", [], None, 3, ["rows", ""], {"a": 1}], ids=repr)
def test_a_function_that_says_nothing_is_an_error_that_says_so(make_engine, said):
    engine = make_engine(query_rewriting=lambda history, question: said)
    with pytest.raises(InvalidInputError, match=r"`query_rewriting` must return a text .*deletion"):
        searched_for(engine)


def test_what_a_function_raises_is_an_answer_error(make_engine):
    def fail(history, question):
        raise KeyError("content")

    def fail_as_we_do(history, question):
        raise NumericalError("no")

    with pytest.raises(
        AnswerError, match=r"`query_rewriting` failed on 'And how .*KeyError: 'content'"
    ):
        searched_for(make_engine(query_rewriting=fail))
    with pytest.raises(NumericalError):
        searched_for(make_engine(query_rewriting=fail_as_we_do))


@pytest.mark.parametrize("wrong", ["join them", True, 3, ["join"]], ids=repr)
def test_another_way_is_refused(make_engine, wrong):
    with pytest.raises(
        InvalidInputError, match="`query_rewriting` must be one of 'join', 'model', a"
    ):
        make_engine(query_rewriting=wrong)


def test_cancelling_ends_what_the_model_writes(make_engine):
    started, given_up, left = threading.Event(), threading.Event(), threading.Event()

    class Endless:
        def generate(self, prompt, *, stopping_criteria, **options):
            started.set()
            try:
                while not given_up.wait(0.001):
                    stopping_criteria[0](None, None)
            except Exception:
                left.set()
                raise

    async def cancelled():
        engine = make_engine(query_rewriting="model", generator=Endless())
        task = asyncio.create_task(engine.achoose(FOLLOW_UP, history=HISTORY))
        await asyncio.to_thread(started.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await asyncio.to_thread(left.wait, 5)

    try:
        assert asyncio.run(cancelled())
    finally:
        given_up.set()
