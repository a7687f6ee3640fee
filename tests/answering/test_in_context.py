import numpy as np
import pytest

from sift_core import AnswerMode, CandidatePool, InvalidInputError, Query
from sift_core.answering.in_context import InContextAnswerer
from tests.pools import pool_of

QUERY = Query(text="why?", embedding=np.ones(2))


@pytest.fixture
def answerer(make_random_lm):
    return InContextAnswerer(language_model=make_random_lm(), max_new_tokens=8)


def test_chunks_that_do_not_fit_are_left_out_whole(answerer):
    # One token a byte, and two for the blank line: 10 + 2 and 5 + 2 fit into 20, 20 + 2 does not.
    fitting = answerer.fit(pool_of(["x" * 10, "y" * 20, "z" * 5]), room=20)
    assert fitting.texts == ("x" * 10, "z" * 5)


def test_a_chunk_chosen_twice_stands_in_the_prompt_once(answerer):
    assert answerer.fit(pool_of(["a", "b", "a"]), room=64).texts == ("a", "b")


def test_the_answer_says_which_chunks_were_read(answerer):
    # A window of 64 less start token, 4 letters of the question and 8 new tokens: 51 remain.
    answer = answerer.answer(QUERY, pool_of(["x" * 30, "y" * 30, "z" * 10]))
    assert answer.mode is AnswerMode.CONTEXT
    assert answer.chunks.texts == ("x" * 30, "z" * 10)
    assert (
        answer.text
        == answerer.language_model.generate(
            f"{'z' * 10}\n\n{'x' * 30}\n\nwhy?", max_new_tokens=8
        ).text
    )


def test_a_question_that_fills_the_window_is_refused(answerer):
    question = Query(text="x" * 80, embedding=np.ones(2))
    with pytest.raises(InvalidInputError, match="do not fit into the model's window of 64"):
        answerer.answer(question, pool_of(["a"]))


def test_bits_per_byte_reads_the_chunks(small_lm):
    answerer = InContextAnswerer(language_model=small_lm)
    text = "Return the number of waiting threads, or zero where the barrier is broken."
    first, second = "Return the number of tasks.", "Return zero where the lock is broken."
    expected = small_lm.bits_per_byte(text, context=f"{second}\n\n{first}")
    assert answerer.bits_per_byte(text, pool_of([first, second])) == expected
    assert (
        answerer.bits_per_byte(text, CandidatePool.empty(dimension=2))
        == small_lm.bits_per_byte(text)
        != expected
    )


def test_a_text_longer_than_the_window_is_scored_with_chunks(answerer):
    # A window of 64: the chunks get half of it, where only the short one fits.
    text = "long " * 40
    expected = answerer.language_model.bits_per_byte(text, context="x" * 10)
    assert answerer.bits_per_byte(text, pool_of(["x" * 10, "y" * 40])) == expected


def test_chunks_whose_tokens_join_differently_never_overflow_the_window(small_lm, monkeypatch):
    monkeypatch.setattr(type(small_lm), "window", property(lambda self: 64))
    answerer = InContextAnswerer(language_model=small_lm, max_new_tokens=1)
    generator = np.random.default_rng(0)
    pieces = [" ", "\n", "  a", "b\n", "\n\n", "word", "7", "é"]
    for _ in range(25):
        texts = ["".join(generator.choice(pieces, size=9)) for _ in range(8)]
        answer = answerer.answer(QUERY, pool_of(texts))
        assert len(answer.chunks) > 0
