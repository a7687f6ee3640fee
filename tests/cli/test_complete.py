import io

import pytest

from sift_core import Document

FILE = "def count(boxes):\n    return len(boxes)\n\n\ndef fold(table):\n    return half(table)\n"


@pytest.fixture(autouse=True)
def settings(elsewhere, fill, random_model, monkeypatch):
    """A random model, a file, and a store with the file's chunks and those of another one."""
    texts = {"shelf.py": FILE.split("\n\n\n"), "other.py": ["def fold(chair):\n    return chair"]}
    documents = [
        Document(document_id=f"{source}#{n}", text=text, metadata={"source": source})
        for source, chunks in texts.items()
        for n, text in enumerate(chunks)
    ]
    (elsewhere / "shelf.py").write_text(FILE)
    monkeypatch.setenv("SIFT_MODEL", str(random_model))
    monkeypatch.setenv("SIFT_STORE", fill(f"faiss:{elsewhere / 'index'}", documents))


def test_stdout_has_the_new_text_alone(sift, record):
    arguments = ("complete", "shelf.py:5", "--max-new-tokens", 6, "--until", "length")
    told = record(*arguments)
    assert told["mode"] == "context"
    assert [one["metadata"]["source"] for one in told["chunks"]] == ["other.py"]
    assert told["path"].endswith("shelf.py")
    assert 0 < told["first_token_s"] <= told["seconds"]
    assert sift(*arguments).out == told["text"] != ""


def test_a_text_on_stdin_is_of_the_file_that_is_named(record, monkeypatch):
    def sources(*arguments):
        monkeypatch.setattr("sys.stdin", io.StringIO("def fold(table):"))
        told = record("complete", "-", "--max-new-tokens", 2, *arguments)
        return sorted(one["metadata"]["source"] for one in told["chunks"])

    assert sources("--path", "shelf.py") == ["other.py"]
    assert sources() == ["other.py", "shelf.py", "shelf.py"]


def test_what_was_learned_is_used_without_a_word(sift, record):
    sift("learn", "--chunks", 3)
    told = record("complete", "shelf.py:5", "--max-new-tokens", 2)
    assert (told["mode"], len(told["chunks"])) == ("learned_context", 1)
    told = record("complete", "shelf.py:5", "--max-new-tokens", 2, "--mode", "learned")
    assert (told["mode"], told["chunks"], told["store"]) == ("learned", [], None)


def test_it_learns_the_chunks_for_one_text(record):
    told = record("complete", "shelf.py", "--mode", "both", "--effort", "quick")
    assert told["fine_tuning"]["n_steps"] == 5
    assert told["mode"] == "both"


def test_the_base_model_needs_no_index(record, monkeypatch):
    monkeypatch.setenv("SIFT_STORE", "faiss:nowhere")
    assert record("complete", "shelf.py:1", "--mode", "base")["chunks"] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.py"], "there is no file 'none.py'"),
        (["none.py:3"], "there is no file 'none.py'"),
        (["shelf.py:99"], "there is no line 99; the text has 7 lines"),
        (["shelf.py", "--path", "a.py"], "--path names the file of a text on stdin"),
        (["shelf.py", "--mode", "learned"], "nothing was learned at '.sift-adapters'"),
    ],
)
def test_what_cannot_be_is_told(refusal, arguments, message):
    assert message in refusal("complete", *arguments)


def test_a_file_with_a_colon_in_its_name_is_that_file(record, elsewhere):
    (elsewhere / "a:1").write_text("def fold(table):")
    assert record("complete", "a:1", "--mode", "base", "--max-new-tokens", 1)["path"].endswith(
        "a:1"
    )


def test_the_mark_that_some_editors_begin_a_file_with_is_no_text(elsewhere, refusal):
    (elsewhere / "empty.py").write_bytes(b"\xef\xbb\xbf\r\n")
    assert "no text before the cursor" in refusal("complete", "empty.py", "--mode", "base")
