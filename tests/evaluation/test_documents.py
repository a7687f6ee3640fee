import gzip
import hashlib
import json
import lzma
import re
from dataclasses import replace

import pytest

from sift_core.errors import InvalidInputError
from sift_core.evaluation.language_modeling.documents import (
    Document,
    chunks,
    cut,
    others,
    read_documents,
    read_shares,
    sample,
)

OPENERS = {".jsonl": open, ".jsonl.gz": gzip.open, ".jsonl.xz": lzma.open}


def write(path, rows):
    opener = next(one for end, one in OPENERS.items() if path.name.endswith(end))
    with opener(path, "wt", encoding="utf-8") as file:
        file.writelines(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows)
    return path


def words(text):
    """A token a word, as tokenizers of words give it: blanks belong to no token."""
    return [match.span() for match in re.finditer(r"\S+", text)]


def utf8_bytes(text):
    """A token a byte, as byte-level tokenizers give it: all of a character have its span."""
    return [(i, i + 1) for i, letter in enumerate(text) for _ in letter.encode()]


def document(number, text="some text", domain="all"):
    return Document(document_id=f"d{number}", domain=domain, text=text, source=f"d{number}")


@pytest.mark.parametrize("ending", OPENERS)
def test_rows_are_read_in_order_with_what_they_leave_out(tmp_path, ending):
    rows = [
        {"id": "a", "domain": "books", "text": " one \n", "doc": "book"},
        {"id": 7, "text": "zwei – 😀"},
        {"id": "blank", "text": " \n"},
        {"text": "no id"},
    ]
    found = read_documents(write(tmp_path / f"data{ending}", rows))
    assert [(one.document_id, one.domain, one.text) for one in found] == [
        ("a", "books", "one"),
        ("7", "all", "zwei – 😀"),
        ("4", "all", "no id"),
    ]
    assert [one.source for one in found[:2]] == ["book", "7"]


def test_rows_without_an_id_share_a_source_only_where_they_share_a_text(tmp_path):
    first = read_documents(write(tmp_path / "a.jsonl", [{"text": "one"}, {"text": "two"}]))
    second = read_documents(write(tmp_path / "b.jsonl", [{"text": "three"}, {"text": " two"}]))
    shared = {one.source for one in first} & {one.source for one in second}
    assert shared == {first[1].source} == {second[1].source}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"id": "a", "text": "x"}, {"id": "a", "text": "y"}], "line 2.*'a' was there before"),
        ([{"id": 1, "text": "x"}, {"id": "1", "text": "y"}], "line 2.*'1' was there before"),
        ([{"id": "", "text": "x"}], "line 1.*id"),
        ([{"id": "a"}], "line 1.*'text'"),
        ([{"id": "a", "text": 3}], "line 1.*'text'"),
        ([{"id": "a", "text": "x", "domain": 3}], "line 1.*'domain'"),
        ([{"id": "a", "text": "x"}, '{"id": "b", "text": "half \\ud83d"}'], "line 2.*UTF-8"),
        ([{"id": "a", "text": " "}], "no document with text"),
        ([], "no document with text"),
        (["{"], "line 1"),
    ],
)
def test_a_file_that_is_not_so_is_refused_by_its_line(tmp_path, rows, message):
    with pytest.raises(InvalidInputError, match=message):
        read_documents(write(tmp_path / "data.jsonl", rows))


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InvalidInputError, match=r"no file .*nothing\.jsonl"):
        read_documents(tmp_path / "nothing.jsonl")


@pytest.mark.parametrize("digits", ["", "ABC", "0g", " "])
def test_digits_that_are_none_are_refused(tmp_path, digits):
    with pytest.raises(InvalidInputError, match="source_digits"):
        read_documents(write(tmp_path / "data.jsonl", [{"text": "x"}]), source_digits=digits)


def test_the_half_is_the_one_that_the_tiny_model_was_not_trained_on(tmp_path):
    train_tiny_lm = pytest.importorskip(
        "examples.train_tiny_lm", reason="needs torch, tokenizers and tqdm"
    )
    rows = [{"id": f"{i}#0", "text": "x", "doc": f"wiki:Größe {i}"} for i in range(200)]
    path = write(tmp_path / "data.jsonl", rows)
    seen = {one.source for one in read_documents(path, source_digits="01234567")}
    unseen = {one.source for one in read_documents(path, source_digits="89abcdef")}
    assert seen == {row["doc"] for row in rows if train_tiny_lm.is_trained_on(row["doc"])}
    assert not seen & unseen
    assert len(seen | unseen) == 200
    assert 70 < len(seen) < 130


@pytest.mark.parametrize("n_tokens", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("tokens_of", [words, utf8_bytes])
@pytest.mark.parametrize(
    "text",
    ["a", "one two  three\n\nfour five six seven", "für 😀😀 👩‍🚀 日本語のテキスト é", "😀" * 20],
)
def test_pieces_joined_again_are_the_text_up_to_a_tail_that_is_left_out(text, tokens_of, n_tokens):
    found = chunks([document(0, text)], tokens_of, n_tokens)
    joined = "".join(one.text for one in found)
    assert text.startswith(joined)
    assert len(tokens_of(text[len(joined) :])) < n_tokens / 4
    assert all(one.text for one in found)
    assert [one.source for one in found] == ["d0"] * len(found)
    if n_tokens == 1:
        assert joined == text
    if tokens_of is words:
        assert all(len(words(one.text)) <= n_tokens for one in found)
        assert [one.document_id for one in found] == [f"d0#{i}" for i in range(len(found))]


@pytest.mark.parametrize(
    ("n_words", "sizes"), [(1, [1]), (8, [8]), (9, [8]), (10, [8, 2]), (16, [8, 8]), (17, [8, 8])]
)
def test_a_tail_of_less_than_a_quarter_is_left_out(n_words, sizes):
    found = chunks([document(0, "word " * (n_words - 1) + "word")], words, 8)
    assert [len(words(one.text)) for one in found] == sizes


def test_so_many_pieces_of_a_document_at_most_are_the_first_ones():
    texts = [" ".join(f"w{i}" for i in range(n)) for n in (40, 3)]
    documents = [document(n, text) for n, text in enumerate(texts)]
    every = chunks(documents, words, 4)
    two = chunks(documents, words, 4, per_document=2)
    assert [one.document_id for one in two] == ["d0#0", "d0#1", "d1#0"]
    assert {one.document_id: one.text for one in two}.items() <= {
        one.document_id: one.text for one in every
    }.items()


@pytest.mark.parametrize("word", ["a", "word", "averylongwordindeed" * 3, "😀"])
@pytest.mark.parametrize("n_tokens", [1, 4, 30])
def test_cutting_keeps_the_beginning_however_long_words_are(word, n_tokens):
    text = " ".join([word] * 50)
    (found,) = cut([document(0, text)], words, n_tokens)
    assert found.text == " ".join([word] * n_tokens)
    assert found.document_id == "d0"


def test_a_short_text_is_not_cut():
    (found,) = cut([document(0, "two words")], words, 5)
    assert found == document(0, "two words")


def test_a_long_text_is_not_tokenized_to_its_end_for_its_beginning():
    seen = []

    def counted(text):
        seen.append(len(text))
        return words(text)

    cut([document(0, "word " * 100_000)], counted, 10)
    assert sum(seen) < 1000


def test_samples_nest_and_take_of_every_domain():
    documents = [document(i, domain="abc"[i % 3]) for i in range(60)]
    small, large = sample(documents, 2), sample(documents, 5)
    assert len(small) == 6
    assert len(large) == 15
    assert {one.domain for one in small} == set("abc")
    assert {one.document_id for one in small} < {one.document_id for one in large}
    assert sample(documents[::-1], 5) == large
    assert sorted(one.document_id for one in sample(documents, None)) == sorted(
        one.document_id for one in documents
    )


def test_what_is_skipped_is_what_a_sample_of_that_size_takes():
    documents = [document(i, domain="ab"[i % 2]) for i in range(20)]
    tuned = {one.document_id for one in sample(documents, 3)}
    judged = {one.document_id for one in sample(documents, 4, skipped=3)}
    assert not tuned & judged
    assert tuned | judged == {one.document_id for one in sample(documents, 7)}
    assert len(sample(documents, None, skipped=3)) == 14
    assert sample(documents, 4, skipped=10) == []


@pytest.mark.parametrize("n", [2, 3, 50])
def test_the_control_of_every_document_is_another_one_and_each_is_one(n):
    documents = [document(i) for i in range(n)]
    control = others(documents)
    assert set(control) == {one.document_id for one in documents}
    assert {one.document_id for one in control.values()} == set(control)
    assert all(document_id != one.document_id for document_id, one in control.items())
    assert others(documents[::-1]) == control


def test_one_document_has_no_control():
    with pytest.raises(InvalidInputError, match="at least two"):
        others([document(0)])


def test_the_control_is_of_another_source():
    pieces = [replace(document(i), source="book" if i < 8 else "film") for i in range(10)]
    control = others(pieces)
    assert all(control[one.document_id].source != one.source for one in pieces)
    with pytest.raises(InvalidInputError, match="of another source"):
        others(pieces[:8])


def test_digests_are_of_ids():
    assert document(3).digest == hashlib.sha1(b"d3").hexdigest()


def test_shares_are_read_by_id(tmp_path):
    rows = [{"id": "a", "gram8_covered": 0, "best": 0.5}, {"id": 2, "gram8_covered": 1.0}]
    path = write(tmp_path / "shares.jsonl", rows)
    assert read_shares(path) == {"a": 0.0, "2": 1.0}
    with pytest.raises(InvalidInputError, match=r"line 2.*'best'.*None"):
        read_shares(path, "best")


@pytest.mark.parametrize("share", [-0.1, 1.1, True, "0.5", None, float("nan")])
def test_what_is_no_share_is_refused(tmp_path, share):
    path = write(tmp_path / "shares.jsonl", [{"id": "a", "gram8_covered": share}])
    with pytest.raises(InvalidInputError, match=r"line 1.*\[0, 1\]"):
        read_shares(path)
