# ruff: noqa: RUF001
"""Texts that stand in one another come once, whatever their embeddings say."""

import numpy as np
import pytest

from sift_core import ContextSelector, Limits, Preferences, StopReason
from sift_core.errors import SameVectorWarning
from sift_core.text_overlap import middle_of, runs_in, select_texts, warn_of_one_vector

LONG = "Declare File and Form parameters together, but not a Body that is expected as JSON, too."
SHORT = "declare File and Form parameters together,\nbut not a Body"
OTHER = "Declare File or Form parameters first, then a Body, which is sent as JSON and read so."


def nearest_first(n):
    """Return a question and n rows, not one of them as near to another as a copy is."""
    rows = np.random.default_rng(0).standard_normal((12, 24)) + 1.4
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    query = rows[:2].sum(axis=0)
    return query, rows[np.argsort(-(rows @ query))[:n]]


def chosen(texts, *, n=6, n_candidates=12, selector=None, **arguments):
    """Return what is chosen of texts, the nearest first, and of others that say something else."""
    texts = texts + [f"Something else, number {i}." for i in range(len(texts), n_candidates)]
    query, rows = nearest_first(n_candidates)
    selection = select_texts(
        selector or ContextSelector(), query, rows, n, text_of=texts.__getitem__, **arguments
    )
    assert len(selection.variances) == len(selection) + 1
    return selection


def test_the_candidates_are_no_near_duplicates():
    assert {0, 1} <= set(chosen([]).positions.tolist())


@pytest.mark.parametrize(
    ("texts", "left_out"),
    [([LONG, SHORT], {1}), ([SHORT, LONG], {0}), ([LONG, OTHER], set()), (["", ""], set())],
)
def test_what_stands_in_another_is_left_out_whichever_is_nearer(texts, left_out):
    found = chosen(texts).positions.tolist()
    assert len(found) == 6
    assert {0, 1} - set(found) == left_out


# A text and another one of the same script that says something else, on similar things.
UNSPACED = {
    "Chinese": (
        "图书馆每天早上九点开门，较大的团体需要提前预约。还书时请把书放入门口旁边的箱子里。",
        "车站每天早上五点开门，学生需要出示证件。买票时请把零钱放入窗口旁边的盘子里，谢谢。",
    ),
    "Japanese": (
        "図書館は毎朝九時に開館します。大人数のグループは事前に予約が必要です。本は箱に返します。",
        "駅は毎朝五時に開きます。学生は窓口で証明書を見せる必要があります。切符は改札で渡します。",
    ),
    "Thai": (
        "ห้องสมุดเปิดทุกวันเวลาเก้าโมงเช้า กลุ่มใหญ่ต้องจองล่วงหน้า กรุณาใส่หนังสือไว้ในกล่อง",
        "สถานีเปิดทุกวันเวลาห้าโมงเช้า นักเรียนต้องแสดงบัตรที่ช่องขายตั๋ว กรุณาใส่เหรียญไว้ในถาด",
    ),
    "Khmer": (
        "បណ្ណាល័យបើករៀងរាល់ថ្ងៃនៅម៉ោងប្រាំបួនព្រឹក ហើយក្រុមធំៗត្រូវកក់ទុកជាមុន",
        "ស្ថានីយ៍បើករៀងរាល់ថ្ងៃនៅម៉ោងប្រាំព្រឹក ហើយសិស្សត្រូវបង្ហាញប័ណ្ណនៅបញ្ជរ",
    ),
}


@pytest.mark.parametrize("script", UNSPACED)
def test_a_contained_text_is_left_out_in_scripts_without_spaces(script):
    text, other = UNSPACED[script]
    part = text[len(text) // 3 : -2]  # begins and ends within a clause
    assert {0, 1} - set(chosen([text, part]).positions.tolist()) == {1}
    assert {0, 1} - set(chosen([text, other]).positions.tolist()) == set()


def test_texts_are_halved_between_words_where_there_is_a_place():
    assert middle_of("one two three four") == 13
    assert middle_of("图书馆九点开门，请预约。还书时放入箱子里。") == 12  # behind the sign
    assert middle_of("图书馆九点开门") == 3
    # 17 letters and marks: half is 8, a vowel above its consonant, which is not torn off.
    thai = "กล่องหน้ห้องสมุดน"
    assert thai[middle_of(thai)].isalpha()
    assert middle_of("x" * 400) == 400


def test_different_texts_with_one_vector_are_worth_a_warning():
    ids, texts = [f"doc{i}" for i in range(6)], [f"text {i}" for i in range(6)]
    rows = np.ones((6, 4))
    rows[4:] = np.eye(4)[:2]
    with pytest.warns(SameVectorWarning, match=r"4 of 6 texts .*'doc0' and 'doc1'"):
        warn_of_one_vector(ids, texts, rows)
    warn_of_one_vector(ids, texts, np.vstack([rows[2:], rows[4:]]))  # two of six
    warn_of_one_vector(ids, ["the same"] * 6, rows)
    warn_of_one_vector(ids, texts, np.eye(6))
    warn_of_one_vector([], [], np.empty((0, 4)))


def test_of_two_that_say_the_same_the_preferred_one_stays():
    assert len({0, 1} & set(chosen([LONG, LONG]).positions.tolist())) == 1
    for preferred in (0, 1):
        preferences = Preferences(prefer=np.arange(12.0) == preferred)
        found = chosen([LONG, LONG], preferences=preferences).positions.tolist()
        assert {0, 1} & set(found) == {preferred}


def test_where_too_little_else_is_left_the_choice_stays_whole():
    selection = chosen([LONG, LONG, LONG], n=5, n_candidates=5)
    assert sorted(selection.positions.tolist()) == [0, 1, 2, 3, 4]
    assert selection.stop_reason is StopReason.N_SELECT
    two_files = Limits(groups=["one", "another", "one", "one", "one"], max_per_group=1)
    assert len(chosen([LONG, LONG], n_candidates=5, limits=two_files)) == 2
    all_fit = Limits(costs=[1] * 5, budget=9)
    assert len(chosen([LONG, LONG, LONG], n_candidates=5, limits=all_fit)) == 5
    two_fit = chosen([LONG] * 3, n_candidates=5, limits=Limits(costs=[1] * 5, budget=2))
    assert len(set(two_fit.positions) & {0, 1, 2}) < 2


def test_candidates_with_one_text_and_many_vectors_cost_one_more_choice():
    class Counting(ContextSelector):
        n = 0

        def select(self, *arguments, **options):
            Counting.n += 1
            return super().select(*arguments, **options)

    query, rows = nearest_first(12)
    texts = [LONG] * 10 + [OTHER] * 2
    select_texts(Counting(), query, rows, 4, text_of=texts.__getitem__)
    assert Counting.n == 2
    found = select_texts(ContextSelector(), query, rows, 2, text_of=texts.__getitem__)
    assert {texts[row] for row in found.positions} == {LONG, OTHER}


@pytest.mark.parametrize(("text", "n"), [("", 0), ("…", 0), ("One word", 1), ("a b c d e f", 2)])
def test_runs_by_hand(text, n):
    assert len(runs_in(text)) == n
