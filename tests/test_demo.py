"""The demo as its user runs it, on a small folder, with bad input, and a second time."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sentence_transformers", reason="needs the extra demo")
from qdrant_client import QdrantClient, models

ROOT = Path(__file__).parents[1]
VERBS = ("read", "write", "copy", "sort", "count", "merge", "print", "drop", "hash", "pack")
MODULE = '"""Work with tables and archives."""\n\n' + "\n".join(
    f"def {verb}_rows(table, limit={n}):\n"
    f'    """{verb.title()} the rows of a table.\n\n    The table is gone through once, from top '
    f"to bottom, at most *limit* rows are touched.\n    Return a list with one dictionary a row; "
    f"an empty table gives an empty list. Raise ValueError\n    where *limit* is negative, and "
    f'TypeError where the table has no columns at all.\n    """\n'
    for n, verb in enumerate(VERBS)
)


def run_demo(*arguments, environment=None):
    return subprocess.run(
        [sys.executable, str(ROOT / "examples/demo.py"), *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "COLUMNS": "140", **(environment or {})},
        timeout=300,
        check=False,
    )


@pytest.fixture
def docs(tmp_path):
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "tables.py").write_text(MODULE, encoding="utf-8")
    (folder / "broken.py").write_text("def f(:\n", encoding="utf-8")
    return folder


def assert_one_clear_error(finished, message):
    assert finished.returncode == 2, finished.stdout + finished.stderr
    assert "Traceback" not in finished.stderr
    error = " ".join(finished.stderr.split())
    assert "error: " in error
    assert message in error


@pytest.mark.slow
def test_the_demo_answers_a_question_and_is_quick_the_second_time(docs, tmp_path):
    cache = tmp_path / "cache"
    arguments = ["--docs", str(docs), "--cache", str(cache), "--question", "How do I sort rows?"]
    first = run_demo(*arguments)
    assert first.returncode == 0, first.stderr
    assert "10 chunks of 2 modules, 10 of them new" in first.stdout
    assert "nearest neighbours" in first.stdout
    assert "SIFT" in first.stdout
    assert "Held back" in first.stdout
    rows = re.findall(r"^(\w+) +(\d+) +(\d\.\d{3}) +(\d+)% +\d", first.stdout, re.MULTILINE)
    bits = {mode: float(figure) for mode, _, figure, _ in rows}
    assert list(bits) == ["base", "context", "fine_tune"]
    assert bits["fine_tune"] < bits["base"]  # the other chunks are nearly the held-back one
    assert "auto would choose" in first.stdout
    assert (cache / "demo.png").read_bytes().startswith(b"\x89PNG")

    second = run_demo(*arguments)
    assert second.returncode == 0, second.stderr
    assert "10 chunks are indexed already" in second.stdout

    changed = MODULE.replace("Sort the rows", "Order the rows")
    (docs / "tables.py").write_text(changed, encoding="utf-8")
    third = run_demo(*arguments)
    assert third.returncode == 0, third.stderr
    assert "10 chunks of 2 modules, 1 of them new" in third.stdout


def test_an_unknown_model_is_one_clear_error(docs, tmp_path):
    finished = run_demo("--docs", str(docs), "--cache", str(tmp_path), "--model", "no/such-model")
    assert_one_clear_error(finished, "no causal language model 'no/such-model'")


def test_an_empty_folder_is_one_clear_error(tmp_path):
    (tmp_path / "empty").mkdir()
    finished = run_demo("--docs", str(tmp_path / "empty"), "--cache", str(tmp_path))
    assert_one_clear_error(finished, "no Python file below")


def test_a_folder_without_docstrings_is_one_clear_error(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/a.py").write_text("x = 1\n", encoding="utf-8")
    finished = run_demo("--docs", str(tmp_path / "docs"), "--cache", str(tmp_path / "cache"))
    assert_one_clear_error(finished, "no docstring in the 1 Python files")


def test_an_empty_question_is_one_clear_error(docs, tmp_path):
    finished = run_demo("--docs", str(docs), "--cache", str(tmp_path), "--question", "  ")
    assert_one_clear_error(finished, "the question is empty")


def test_a_collection_of_another_dimension_is_one_clear_error(docs, tmp_path):
    client = QdrantClient(path=str(tmp_path / "qdrant"))
    vectors = models.VectorParams(size=768, distance=models.Distance.COSINE)
    client.create_collection("standard-library-all-MiniLM-L6-v2", vectors_config=vectors)
    client.close()
    finished = run_demo("--docs", str(docs), "--cache", str(tmp_path))
    assert_one_clear_error(finished, "the dense vectors {'': 768}, the embedder makes 384")


def test_a_qdrant_that_is_not_there_is_one_clear_error(docs, tmp_path):
    arguments = ["--docs", str(docs), "--cache", str(tmp_path)]
    finished = run_demo(*arguments, "--qdrant", "http://127.0.0.1:1")
    assert_one_clear_error(finished, "is the server up")


def test_a_folder_in_use_is_one_clear_error(docs, tmp_path):
    client = QdrantClient(path=str(tmp_path / "qdrant"))
    try:
        finished = run_demo("--docs", str(docs), "--cache", str(tmp_path))
    finally:
        client.close()
    assert_one_clear_error(finished, "wait for the other run")


def test_a_question_with_brackets_and_quotes_is_shown_as_it_is(docs, tmp_path):
    question = 'What is in [/tmp] and dict[str], isn\'t it "$HOME"?'
    finished = run_demo("--docs", str(docs), "--cache", str(tmp_path), "--question", question)
    assert finished.returncode == 0, finished.stderr
    assert question in finished.stdout


def test_make_passes_the_question_on_as_it_was_typed(tmp_path):
    # `make -n` prints the command; the shell then takes the question from the environment.
    makefile = tmp_path / "Makefile"
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "examples/demo.py" in text
    text = text.replace("$(BIN)/python examples/demo.py", "@printf '%s\\n'")
    makefile.write_text(text.replace("demo: $(INSTALLED)", "demo:"), encoding="utf-8")
    question = 'What do $PATH, $(HOME) and `ls` do, isn\'t it "odd"?'
    command = ["make", "--no-print-directory", "-f", str(makefile), "demo", f"QUESTION={question}"]
    finished = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
    assert finished.stdout.splitlines() == ["--question", question]


@pytest.mark.parametrize("url", ["ftp://nowhere", "http://localhost:abc"])
def test_a_url_that_is_none_is_one_clear_error(docs, tmp_path, url):
    finished = run_demo("--docs", str(docs), "--cache", str(tmp_path), "--qdrant", url)
    assert_one_clear_error(finished, "Qdrant")


def test_a_cache_that_cannot_be_made_is_one_clear_error(docs):
    finished = run_demo("--docs", str(docs), "--cache", "/dev/null/cache")
    assert_one_clear_error(finished, "cannot open Qdrant")


def test_an_unknown_embedder_is_one_clear_error(docs, tmp_path):
    finished = run_demo("--docs", str(docs), "--cache", str(tmp_path), "--embedder", "no/such")
    assert_one_clear_error(finished, "no embedding model 'no/such'")
