# ruff: noqa: RUF001  # texts in other scripts look like Latin letters
import sys
import tracemalloc
import unicodedata
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sift_core import InvalidInputError
from sift_core.selection import word_counts
from sift_core.selection.word_counts import (
    BLOCK_LENGTH,
    HEADING,
    WordCountCache,
    count_words,
    spellings,
    words_of,
)


def spelled_counts(text, counts):
    """What was counted of a text, word → count."""
    spelled = spellings(text)
    counted = np.expm1(counts.log_counts).round().astype(int).tolist()
    return {spelled[h]: n for h, n in zip(counts.hashes.tolist(), counted, strict=True)}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The cat's mat, again.", "the cat s mat again"),
        ("Die Straße im März, STRASSE", "die strasse im märz strasse"),
        ("Ma\u0308rz", "märz"),  # a combining mark
        ("I\u0307stanbul na\u00efve", "i̇stanbul naïve"),
        ("version 0.68.1 of 2024-05-01", "version 0.68.1 of 2024-05-01 2024"),
        ("E1042 ISO-8601", "e1042 iso-8601 iso 8601"),
        (
            "ISO\u20108601 ISO\u20118601",
            "iso-8601 iso 8601 iso-8601 iso 8601",
        ),  # typographic hyphens
        ("v1.2-rc3", "v1.2-rc3 v1 rc3"),
        ("file_name __init__ _", "file_name file name __init__ init _"),
        ("os.path.join(a, b)", "os.path.join os path join a b"),
        ("https://docs.rs/a/b?x=1", "https docs.rs/a/b docs rs x 1"),
        ("key:value a--b .5 end.", "key:value key value a b 5 end"),
        ("１２３ ＡＢＣ ﬁle ①", "123 abc file 1"),  # full width, ligature
        ("Intel™ x² ½", "intel x2 1 2"),
        ("soft\u00adhyphen zero\u200bwidth \ufeffmark", "softhyphen zero width mark"),
        ("東京都", "東京 京都"),
        ("中。文字", "中 文字"),
        ("Python3を使う", "python3 を使 使う"),
        ("データー々ｶﾞ", "デー ータ ター ー々 々ガ"),
        ("二〇二五年3月", "二〇 〇二 二五 五年 3 月"),
        ("한국어 문서", "한국 국어 문서"),
        ("\u1112\u1161\u11ab\u1100\u116e\u11a8", "한국"),  # conjoining letters
        ("ภาษาไทย ๒๕๖๗", "ภา าษ ษา าไ ไท ทย ๒๕๖๗"),
        ("ພາສາ ភាសា မြန်", "ພາ າສ ສາ ភា ាស សា မြ ြန န်"),
        ("العَرَبِيَّة كتـــاب", "العربية كتاب"),  # vowel points, and a letter that only widens
        ("می\u200cخواهم", "میخواهم"),
        ("שָׁלוֹם", "שלום"),
        ("हिन्दी भाषा", "हिन्दी भाषा"),  # marks are parts of words
        ("\u202eabc\u202c", "abc"),
        ("🙂 👩\u200d💻 ❤\ufe0f", ""),
        ("1\ufe0f\u20e3", "1"),
        ("\ud800 a\udfffb", "a b"),
        ("a\0b\x1c\tc", "a b c"),
        (" \n…—", ""),
        ("", ""),
    ],
)
def test_words_by_hand(text, words):
    assert words_of(text) == words.split()


@pytest.mark.slow
def test_words_do_not_depend_on_other_texts_of_a_block():
    # Without a character that needs it, a block is not normalised: "²" makes it so.
    characters = map(chr, range(sys.maxunicode + 1))
    changed = [c for c in characters if unicodedata.normalize("NFKC", c) != c]
    texts = [f"a{c}b {c} {c}1" for c in changed]
    for text, alone, beside in zip(
        texts, map(words_of, texts), count_words([*texts, "²"])[:-1], strict=True
    ):
        assert spelled_counts(text, beside) == Counter(alone)
    assert len(texts) > 4_000


@given(st.lists(st.text(st.characters(exclude_categories=())), max_size=4))
def test_no_string_raises_and_counts_are_those_of_the_words(texts):
    for text, counts in zip(texts, count_words(texts), strict=True):
        assert spelled_counts(text, counts) == Counter(words_of(text))
        assert (np.diff(counts.hashes.astype(object)) > 0).all()


@given(st.text(st.characters(exclude_categories=())))
@settings(max_examples=200)
def test_equivalent_texts_have_the_same_words(text):
    for form in ("NFC", "NFD"):
        assert words_of(unicodedata.normalize(form, text)) == words_of(text)


def test_log_counts_by_hand():
    (counts,) = count_words(["to be or not to be to"])
    assert spelled_counts("to be or not", counts) == {"to": 3, "be": 2, "or": 1, "not": 1}
    assert sorted(counts.log_counts.tolist()) == pytest.approx(np.log([2, 2, 3, 4]).tolist())


def test_words_of_a_heading_count_twice_in_addition():
    text, heading = "cats and dogs", "Cats of Rome"
    (counts,) = count_words([text], [heading])
    assert spelled_counts(f"{text} {heading}", counts) == {
        "cats": 1 + HEADING,
        "and": 1,
        "dogs": 1,
        "of": HEADING,
        "rome": HEADING,
    }
    assert HEADING == 2


def test_a_word_has_the_same_hash_wherever_it_stands():
    long = "filler " * BLOCK_LENGTH
    texts = ["needle", f"{long} needle", f"東京 é {long} needle", "ﬁrst needle"]
    hashes = [set(counts.hashes.tolist()) for counts in count_words(texts)]
    assert hashes[0] <= set.intersection(*hashes)
    assert hashes == [set(count_words([text])[0].hashes.tolist()) for text in texts]


@pytest.mark.parametrize("length", [1, 5, 7, 100])
def test_texts_of_several_blocks_count_as_in_one(monkeypatch, length):
    texts = ["one two two three-four " * 3, "", "two", "五 六七 " * 4]
    headings = ["two", "one " * 9, "", ""]
    whole = count_words(texts, headings)
    words = [words_of(text) for text in texts]
    monkeypatch.setattr(word_counts, "BLOCK_LENGTH", max(length, 12))
    for one, other in zip(whole, count_words(texts, headings), strict=True):
        assert one.hashes.tolist() == other.hashes.tolist()
        assert one.log_counts.tolist() == other.log_counts.tolist()
    assert [words_of(text) for text in texts] == words


def test_many_texts_without_words():
    assert [len(counts.hashes) for counts in count_words([""] * 70_000)] == [0] * 70_000


def test_a_word_longer_than_a_block_is_cut_and_nothing_raises():
    n_whole, rest = divmod(10 * 2**20 + 3, BLOCK_LENGTH)
    words = words_of("a" * (n_whole * BLOCK_LENGTH + rest))
    assert words == ["a" * BLOCK_LENGTH] * n_whole + ["a" * rest]


def test_runs_of_marks_are_cut_before_they_are_sorted():
    # Python sorts marks in quadratic time: these 60,000 for three seconds.
    text = "x a" + "\u0301\u0323" * 30_000 + " y"
    first, marked, last = words_of(text)
    assert (first, last) == ("x", "y")
    # 15 of each: the dots first, one of them joined with the letter.
    assert marked == "\N{LATIN SMALL LETTER A WITH DOT BELOW}" + "\u0323" * 14 + "\u0301" * 15


def test_marks_of_separate_texts_are_no_run():
    texts = ["\u0301\u0301" for _ in range(100)]
    assert {tuple(counts.hashes.tolist()) for counts in count_words(texts)} == {
        tuple(count_words(texts[:1])[0].hashes.tolist())
    }


def test_a_cache_returns_what_it_counted_before():
    cache = WordCountCache()
    first = cache.count_words(["a b", "c", "a b"], ["", "t", ""])
    again = cache.count_words(["c", "a" + " b"], ["t", ""])
    assert first[0] is first[2] is again[1]
    assert first[1] is again[0]
    assert len(cache) == 2
    assert cache.count_words(["a b"])[0] is first[0]  # no heading and an empty one are alike
    assert len(cache.count_words(["c"])[0].hashes) == 1  # without its heading another entry
    assert cache.count_words([]) == []


def test_what_a_cache_returns_cannot_be_changed():
    (counts,) = WordCountCache().count_words(["a b"])
    for array in counts:
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_the_least_recently_used_is_dropped():
    # An entry of one word takes 616 bytes.
    cache = WordCountCache(max_bytes=3 * 616)
    a, b, _ = cache.count_words(["a", "b", "c"])
    assert (len(cache), cache.n_bytes) == (3, 3 * 616)
    cache.count_words(["a"])
    cache.count_words(["d"])
    assert len(cache) == 3
    assert cache.count_words(["a"])[0] is a
    assert cache.count_words(["b"])[0] is not b


def test_more_than_fits_is_counted_and_not_kept():
    cache = WordCountCache(max_bytes=1)
    assert len(cache.count_words(["a b c"])[0].hashes) == 3
    assert (len(cache), cache.n_bytes) == (0, 0)
    cache = WordCountCache(max_bytes=10 * 616)
    cache.count_words([f"w{i}" for i in range(100)])
    assert (len(cache), cache.n_bytes) == (10, 10 * 616)


@pytest.mark.parametrize("max_bytes", [0, -1, 1.5, None])
def test_a_cache_refuses_a_size_that_is_none(max_bytes):
    with pytest.raises(InvalidInputError, match="max_bytes"):
        WordCountCache(max_bytes)


def test_an_entry_takes_no_more_than_is_counted():
    texts = [f"a{i} b{i} c{i}" for i in range(5_000)]
    cache = WordCountCache()
    cache.count_words(["warm up"])
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        cache.count_words(texts)
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert 0.5 * cache.n_bytes < taken < cache.n_bytes


def test_threads_share_a_cache():
    cache = WordCountCache(max_bytes=40 * 700)
    texts = [f"w{i} w{i + 1} w{i} shared" for i in range(80)]
    expected = [counts.log_counts.tolist() for counts in count_words(texts)]

    def ask(seed):
        rows = np.random.default_rng(seed).permutation(80)[:30].tolist()
        found = cache.count_words([texts[row] for row in rows])
        assert [one.log_counts.tolist() for one in found] == [expected[row] for row in rows]

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(ask, range(200)))
    assert cache.n_bytes == sum(cache._n_bytes_of(entry) for entry in cache._entries.values())
    assert cache.n_bytes <= 40 * 700
