"""The index of words alone; `test_look_up` compares its scores with the formula."""

from io import BytesIO

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sift_core.sources.lexical_index import LexicalIndex

COLUMNS = ("ids", "lengths", "words", "starts", "rows", "counts")


def indexed(texts, headings=None, kept=None):
    """Return an index of texts by id, added to another."""
    headings = headings or {}
    return (kept or LexicalIndex.empty()).updated(
        np.array(list(texts), dtype=np.int64),
        lambda ids: ([texts[i] for i in ids], [headings.get(i, "") for i in ids]),
    )


def assert_equal(index, other):
    for name in COLUMNS[:4]:
        np.testing.assert_array_equal(getattr(index, name), getattr(other, name))
    for name in COLUMNS[4:]:  # the documents of one word may come in any order
        columns = [getattr(each, name)[in_order(each)] for each in (index, other)]
        np.testing.assert_array_equal(*columns)


def in_order(index):
    """Return the order by word, then by document."""
    return np.lexsort((index.rows, np.repeat(np.arange(len(index.words)), np.diff(index.starts))))


def test_words_of_a_heading_count_twice_in_addition():
    index = indexed({0: "pump", 1: "pump", 2: "oil", 3: ""}, {1: "pump"})
    np.testing.assert_array_equal(index.lengths, [1, 3, 1, 0])
    assert index.search(["oil", "pump"], 5).ids == [2, 1, 0]


def test_a_word_that_more_than_half_have_is_left_out_unless_all_are_such():
    texts = {i: f"the number{i}" for i in range(6)} | {6: "the rare word", 7: "a rare word"}
    index = indexed(texts)
    assert index.search(["the", "rare"], 9).ids == [6, 7]
    assert index.search(["the"], 9).ids == [0, 1, 2, 3, 4, 5, 6]
    assert index.search(["the", "unheard"], 9).ids == [0, 1, 2, 3, 4, 5, 6]
    assert index.search(["the", "the"], 3) == index.search(["the"], 3)


def test_a_filter_sees_the_best_first_and_no_more_than_it_must():
    index = indexed({i: "word " * (i + 1) + "other " * (30 - i) for i in range(30)} | {99: "x"})
    seen = []
    ranked = index.search(["word"], 2, lambda i: seen.append(i) or i % 5 == 0)
    assert ranked.ids == [25, 20]
    assert seen == list(range(29, 19, -1))


def test_nothing_is_found_in_nothing():
    assert LexicalIndex.empty().search(["word"], 3).ids == []
    assert indexed({0: "", 1: "🙂"}).search(["word"], 3).ids == []
    assert_equal(LexicalIndex.from_bytes(LexicalIndex.empty().as_bytes()), LexicalIndex.empty())


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("+-"), st.integers(0, 12)), max_size=12),
    st.lists(st.text("ab ж東京.1_", max_size=12), min_size=13, max_size=13),
)
def test_changes_give_what_indexing_anew_gives(changes, texts):
    index, held = LexicalIndex.empty(), {}
    for sign, i in changes:
        held.pop(i, None)
        if sign == "+":
            held[i] = texts[i]
        index = indexed(held, kept=index)
    anew = indexed(dict(sorted(held.items())))
    assert_equal(index, anew)
    assert_equal(LexicalIndex.from_bytes(index.as_bytes()), anew)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rows", np.array([0, 9], dtype=np.int32)),
        ("rows", np.array([0, -1], dtype=np.int32)),
        ("rows", np.array([0, 1], dtype=np.int64)),
        ("starts", np.array([0, 5], dtype=np.int64)),
        ("starts", np.array([[0, 2]], dtype=np.int64)),
        ("ids", np.array([1, 0], dtype=np.int64)),
        ("lengths", np.array([1], dtype=np.int64)),
        ("words", np.array(["a"], dtype=object)),
        ("counts", None),
    ],
)
def test_columns_that_do_not_fit_together_are_refused(name, value):
    index = indexed({0: "a", 1: "a"})
    columns = {column: getattr(index, column) for column in COLUMNS}
    columns[name] = value
    if value is None:
        del columns[name]
    file = BytesIO()
    np.savez(file, **columns)
    with pytest.raises(ValueError, match="no words of ours"):
        LexicalIndex.from_bytes(file.getvalue())
