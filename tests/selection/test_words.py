import json
import math
import tracemalloc
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sift_core import InvalidInputError
from sift_core.selection import word_table
from sift_core.selection.word_counts import WordCountCache, words_of
from sift_core.selection.words import pool_words
from tests.selection.test_backend import run

VOCABULARY = ["the", "of", "a", "cat", "dog", "E1042", "E1043", "v0.68.1", "file_name", "x-y-z"]
VOCABULARY += [f"word{i}" for i in range(60)] + ["東京都", "Straße", "ﬁle", "مرحبا"]


def random_texts(rng, n, *, longest=40):
    """Texts of words of which the first ones are much more frequent."""
    chances = 1 / np.arange(1, len(VOCABULARY) + 1)
    chances /= chances.sum()
    lengths = rng.integers(0, longest, n)
    return [" ".join(rng.choice(VOCABULARY, length, p=chances)) for length in lengths]


class Plain:
    """The same by dictionaries and loops."""

    def __init__(self, texts, questions, headings=None):
        self.counted = [Counter(words_of(text)) for text in texts]
        for counts, heading in zip(self.counted, headings or [], strict=bool(headings)):
            for word in words_of(heading):
                counts[word] += 2
        self.asked = [Counter(words_of(question)) for question in questions]
        n = len(texts)
        having = Counter(word for counts in self.counted for word in counts)
        self.rarity = {w: max(math.log((n + 1) / (df + 0.5)), 0) for w, df in having.items()}
        self.rows = [self.unit(counts) for counts in self.counted]
        self.questions = [self.unit(counts) for counts in self.asked]

    def unit(self, counts, without=()):
        values = {
            word: math.log1p(count) * self.rarity[word]
            for word, count in counts.items()
            if word in self.rarity and word not in without
        }
        length = math.sqrt(sum(value * value for value in values.values()))
        return {word: value / length for word, value in values.items()}

    def linked_rows(self):
        asked = {word for counts in self.asked for word in counts}
        return [self.unit(counts, asked) for counts in self.counted]


def cosine(one, other):
    return sum(value * other.get(word, 0.0) for word, value in one.items())


def gram_of(rows):
    gram = [[cosine(one, other) for other in rows] for one in rows]
    for i in range(len(rows)):
        gram[i][i] = 1.0
    return np.array(gram).reshape(len(rows), len(rows))


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def test_tf_idf_by_hand():
    # n = 2. "cat" stands in both: log(3 / 2.5). "a", "b", "x" in one: log(3 / 1.5) = log 2.
    words = pool_words(["cat cat a", "cat b"], ["cat? a! unheard-of"])
    common, rare = math.log(3 / 2.5), math.log(2)
    first = np.array([math.log(3) * common, math.log(2) * rare, 0])
    second = np.array([math.log(2) * common, 0, math.log(2) * rare])
    asked = np.array([math.log(2) * common, math.log(2) * rare, 0])
    expected = unit(first) @ unit(second)
    assert words.gram == pytest.approx(np.array([[1, expected], [expected, 1]]), abs=1e-14)
    assert words.question == pytest.approx(
        np.array([[unit(asked) @ unit(first), unit(asked) @ unit(second)]]), abs=1e-14
    )
    assert words.has_words.tolist() == [True, True]
    assert words.question_has_words.tolist() == [True]


def test_linked_has_no_words_of_questions_by_hand():
    texts = ["cat likes milk", "cat hates water", "milk cow", "cat", ""]
    words = pool_words(texts, ["a cat?", "likes water"])
    # Left are milk | hates | milk cow, where rarity of milk is log(6 / 2.5), of cow log(6 / 1.5).
    milk, cow = math.log(6 / 2.5), math.log(6 / 1.5)
    expected = np.eye(5)
    expected[0, 2] = expected[2, 0] = milk / math.hypot(milk, cow)
    assert words.linked == pytest.approx(expected, abs=1e-14)
    assert words.linked is words.linked
    assert words.gram[0, 1] > 0


@pytest.mark.parametrize("n", [1, 2, 3, 8, 40, 90])
@pytest.mark.parametrize("n_questions", [0, 1, 3])
def test_agrees_with_dictionaries_and_loops(n, n_questions):
    for seed in range(3):
        rng = np.random.default_rng([seed, n])
        texts, questions = random_texts(rng, n), random_texts(rng, n_questions, longest=6)
        headings = random_texts(rng, n, longest=4) if seed else None
        words = pool_words(texts, questions, headings=headings)
        plain = Plain(texts, questions, headings)
        products = [[cosine(q, row) for row in plain.rows] for q in plain.questions]
        assert words.gram == pytest.approx(gram_of(plain.rows), abs=1e-12)
        assert words.question == pytest.approx(np.array(products).reshape(n_questions, n))
        assert words.linked == pytest.approx(gram_of(plain.linked_rows()), abs=1e-12)
        assert words.has_words.tolist() == [bool(row) for row in plain.rows]
        assert words.question_has_words.tolist() == [bool(row) for row in plain.questions]


@pytest.mark.parametrize("share_few", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("at_once", [1, 200, 2**20])
def test_sums_are_the_same_by_pairs_and_by_products_in_any_blocks(monkeypatch, share_few, at_once):
    texts = random_texts(np.random.default_rng(0), 50)
    expected = pool_words(texts, ["cat"])
    monkeypatch.setattr(word_table, "FEW_CANDIDATES", share_few)
    monkeypatch.setattr(word_table, "NUMBERS_AT_ONCE", at_once)
    found = pool_words(texts, ["cat"])
    assert found.gram == pytest.approx(expected.gram, abs=1e-14)
    assert found.linked == pytest.approx(expected.linked, abs=1e-14)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=())), max_size=6), st.text())
def test_no_string_raises_and_cosines_are_in_range(texts, question):
    words = pool_words(texts, [question], headings=texts[::-1])
    for cosines in (words.gram, words.question, words.linked):
        assert ((cosines >= 0) & (cosines <= 1)).all()
    assert (np.diag(words.gram) == 1).all()
    assert (words.gram == words.gram.T).all()


SEVERAL = """
import hashlib, json
from sift_core.selection.words import pool_words
texts = [" ".join(f"w{i * j % 97} é{i % 7} v{j}.{i}" for j in range(30)) for i in range(80)]
words = pool_words(texts, ["w3 w5 v1.2", "é1"])
arrays = [words.gram, words.question, words.linked]
digest = hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()
print(json.dumps([digest, words.gram[0].tolist(), words.shared_words(0, 7)]))
"""


def test_results_do_not_depend_on_the_process_or_its_threads():
    found = []
    for seed, threads in [("0", "1"), ("random", "1"), ("1", "2")]:
        environment = {"PYTHONHASHSEED": seed, "OMP_NUM_THREADS": threads}
        found.append(json.loads(run(SEVERAL, **environment, OPENBLAS_NUM_THREADS=threads)))
    assert found[0] == found[1]
    assert found[2][1] == pytest.approx(found[0][1], abs=1e-14)  # BLAS may sum in another order
    assert found[2][2] == found[0][2]


def test_results_do_not_depend_on_what_was_cached_before():
    texts = random_texts(np.random.default_rng(3), 60)
    cache = WordCountCache()
    cold = pool_words(texts, ["cat"], cache=cache)
    pool_words(texts[::2], ["dog"], cache=cache)
    warm = pool_words(texts, ["cat"], cache=cache)
    dropped = pool_words(texts, ["cat"], cache=WordCountCache(max_bytes=5_000))
    assert cold.gram.tolist() == warm.gram.tolist() == dropped.gram.tolist()
    assert cold.question.tolist() == warm.question.tolist()


def test_memory_is_bounded_for_long_texts():
    # Of 300 texts of 3,000 characters all words differ, or all are the same.
    several = [" ".join(f"w{i}x{j}" for j in range(400)) for i in range(300)]
    same = [" ".join(f"w{j}" for j in range(400)) for _ in range(300)]
    for texts in (several, same):
        tracemalloc.start()
        try:
            words = pool_words(texts, ["w1"], cache=WordCountCache())
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert words.gram.shape == (300, 300)
        assert peak < 40 * 2**20


def test_shared_words_by_hand():
    texts = ["E1042 in file_name of cats", "cats of E1042 file_name", "in of cats", "of 東京都"]
    words = pool_words(texts, ["E1042, in cats?"])
    # E1042, file_name and its parts stand in two of four; of these the longest comes first, and
    # parts of what is named are left out. cats stands in three, of in all.
    assert words.shared_words(0, 1, n=9) == ("file_name", "e1042", "cats", "of")
    assert words.shared_words(0, 1) == ("file_name", "e1042", "cats")
    assert words.shared_words(0, 1, linked=True) == ("file_name", "of")
    assert words.shared_words(0, 1, n=0) == ()
    assert words.shared_words(0, 0, n=1) == ("file_name",)
    assert words.shared_words(3, 2) == ("of",)
    assert words.question_words(0) == ("e1042", "in", "cats")
    assert words.question_words(3) == ()


def test_shared_words_weigh_how_often_they_stand():
    texts = ["red red red blue", "blue red red red", "x", "y"]
    words = pool_words(
        texts, ["nothing", "blue blue blue red"], headings=["Green", "green", "", ""]
    )
    # log(1 + 3)² of red, log(1 + 2)² of green, log(1 + 1)² of blue, all equally rare.
    assert words.shared_words(0, 1) == ("red", "green", "blue")
    assert words.question_words(0, question=1, n=1) == ("blue",)  # log 4 · log 2, as red: longer
    assert words.question_words(0) == ()


def test_words_of_most_candidates_are_not_named():
    texts = [f"the key of house {i}" for i in range(20)] + ["the L9 of Berth 5", "which was the"]
    words = pool_words(texts, ["Which is the light of L9, at 5?"])
    assert words.question_words(20) == ("l9", "5")
    assert words.question_words(5) == ("5",)
    assert words.question_words(0) == ()
    assert words.question_words(21) == ("which",)


@pytest.mark.parametrize(
    ("subject", "noise"), [("crane", "which"), ("Kran", "welcher"), ("κρένες", "ποιος")]
)
def test_words_that_lie_anywhere_are_not_named_however_rare(subject, noise):
    # Each stands in 12 of 40 texts: the subject in the nearest ones, the other word in all kinds.
    texts = [f"x{i}" + f" {subject}" * (i < 12) + f" {noise}" * (i % 10 > 6) for i in range(40)]
    cosines = np.linspace(0.9, 0.1, 40)
    words = pool_words(texts, [f"{noise} {subject}"])
    assert len(words.question_words(8)) == 2
    assert words.question_words(8, cosines=cosines) == (subject.casefold(),)
    assert words.question_words(38, cosines=cosines) == ()
    everywhere = pool_words([f"x{i} {subject}" for i in range(40)], [subject])
    assert everywhere.question_words(0, cosines=cosines) == ()
    # A word of nine candidates is named, however far they are.
    few = pool_words([f"x{i}" + " pager" * (i > 30) for i in range(40)], ["pager"])
    assert few.question_words(39, cosines=cosines) == ("pager",)


@pytest.mark.parametrize(
    ("texts", "questions", "headings", "message"),
    [
        ("one text", ["q"], None, "`texts` must be a sequence"),
        (["a"], "q", None, "`questions` must be a sequence"),
        (["a", None], ["q"], None, "`texts` must hold strings, got None"),
        (["a"], [3], None, "`questions` must hold strings"),
        (["a", "b"], ["q"], ["a"], "`headings` must have one string a text: 2 text"),
        (["a", "b"], ["q"], [None, "b"], "`headings` must hold strings"),
    ],
)
def test_what_is_no_sequence_of_strings_is_refused(texts, questions, headings, message):
    with pytest.raises(InvalidInputError, match=message):
        pool_words(texts, questions, headings=headings)


def test_positions_and_numbers_that_are_none_are_refused():
    words = pool_words(["a", "a"], ["a", "a"])
    for name, call in (
        ("row", lambda: words.shared_words(-1, 1)),
        ("other", lambda: words.shared_words(0, None)),
        ("row", lambda: words.question_words(0.5)),
        ("question", lambda: words.question_words(0, question=2)),
        ("n", lambda: words.shared_words(0, 1, n=-1)),
    ):
        with pytest.raises(InvalidInputError, match=f"`{name}` must be"):
            call()
