"""What a newcomer is told: the likeliest mistakes, and the words that each must get.

Every message is one line that says what was wrong, what arrived and what to do.
"""

import io
import re
import subprocess
import sys
from pathlib import Path

import huggingface_hub.hf_api
import numpy as np
import pytest

from sift_core import Document, InvalidInputError, select

ROOT = Path(__file__).parents[2]
TINY_LM = str(ROOT / "examples/tiny_lm")


def no_index(folder):
    return ["search", "How?"]


def store_of_another_kind(folder):
    return ["search", "How?", "--store", "chroma:docs"]


def host_without_scheme(folder):
    return ["search", "How?", "--store", "qdrant:localhost:6333"]


def key_in_the_address(folder):
    return ["search", "How?", "--store", "qdrant:https://:s3cret@example.org"]


def server_is_down(folder):
    return ["search", "How?", "--store", "qdrant:http://127.0.0.1:9"]


def wrong_embedder(folder):
    return ["search", "How?", "--store", "faiss:filled", "--embedder", "bge-small"]


def embedder_with_a_typo(folder):
    return ["index", "docs", "--embedder", "./all-MiniLM-L6-v3"]


def empty_question(folder):
    return ["search", " ", "--store", "faiss:filled"]


def nothing_from_the_pipe(folder):
    return ["search", "-", "--store", "faiss:filled"]


def no_model(folder):
    return ["ask", "How?", "--store", "faiss:filled"]


def model_with_a_typo(folder):
    return ["ask", "How?", "--store", "faiss:filled", "--model", "examples/tiny_ml/"]


def no_network(folder):
    return ["ask", "How?", "--store", "faiss:filled", "--model", "somebody/some-model"]


def no_such_gpu(folder):
    return ["ask", "How?", "--store", "faiss:filled", "--model", TINY_LM, "--device", "cuda:7"]


def folder_with_a_typo(folder):
    return ["index", "dcos"]


def empty_folder(folder):
    (folder / "empty").mkdir()
    return ["index", "empty"]


def binary_file(folder):
    (folder / "photo.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    return ["index", "photo.png"]


def another_folder_into_the_store(folder):
    (folder / "other").mkdir()
    (folder / "other/new.md").write_text("# New\n\nOther words.\n", encoding="utf-8")
    return ["index", "other", "--store", "faiss:filled"]


def no_place_to_write(folder):
    (folder / "taken").write_text("a file", encoding="utf-8")
    return ["index", "docs", "--store", "faiss:taken"]


def damaged_store(folder):
    (folder / "filled/manifest.json").write_text("{", encoding="utf-8")
    return ["search", "How?", "--store", "faiss:filled"]


def settings_with_a_typo(folder):
    (folder / "sift.toml").write_text('sotre = "faiss:filled"\n', encoding="utf-8")
    return ["search", "How?"]


def secret_in_the_settings(folder):
    (folder / "sift.toml").write_text('[search]\napi_key = "s3cret"\n', encoding="utf-8")
    return ["search", "How?"]


def settings_that_are_no_toml(folder):
    (folder / "sift.toml").write_text("store = faiss:filled\n", encoding="utf-8")
    return ["search", "How?"]


def more_chosen_than_candidates(folder):
    return ["search", "How?", "--store", "faiss:filled", "-n", "20", "--candidates", "10"]


def lambda_of_zero(folder):
    return ["search", "How?", "--store", "faiss:filled", "--noise-variance", "0"]


MISTAKES = {
    no_index: ["no index at faiss:.sift", "sift index FOLDER"],
    store_of_another_kind: ["faiss:FOLDER", "qdrant:http://HOST:6333", "'chroma:docs'"],
    host_without_scheme: ["'localhost:6333'", "qdrant:http://localhost:6333"],
    key_in_the_address: ["user, password or key", "QDRANT_API_KEY"],
    server_is_down: ["qdrant:http://127.0.0.1:9", "is the server up"],
    wrong_embedder: ["'all-MiniLM-L6-v2', not 'bge-small'", "leave --embedder out"],
    embedder_with_a_typo: ["no model folder './all-MiniLM-L6-v3'", "sentence-transformers"],
    empty_question: ["the question is empty", "ask something"],
    nothing_from_the_pipe: ["the question is empty", "ask something"],
    no_model: ["no model was named", "--model", "SIFT_MODEL", "sift.toml"],
    model_with_a_typo: ["no model folder 'examples/tiny_ml/'", "an id on the hub"],
    no_network: ["'somebody/some-model'", "not downloaded before", "check spelling and network"],
    no_such_gpu: ["on device 'cuda:7'"],
    folder_with_a_typo: ["no file or folder 'dcos'", "correct the path"],
    empty_folder: ["nothing to read in empty", "no files", ".md", "the store was not touched"],
    binary_file: ["nothing to read in photo.png", "1 binary, no text"],
    another_folder_into_the_store: ["it holds docs/cats.md", "another --store"],
    no_place_to_write: ["'taken' is a file", "a folder of its own"],
    damaged_store: ["manifest.json", "damaged", "restore it"],
    settings_with_a_typo: ["'sift.toml'", "'sotre'", "store", "[search]"],
    secret_in_the_settings: ["'sift.toml'", "'api_key'", "QDRANT_API_KEY"],
    settings_that_are_no_toml: ["'sift.toml' is no TOML", "in quotes"],
    more_chosen_than_candidates: ["--candidates must be >= --n-select, got 10 and 20"],
    lambda_of_zero: ["`noise_variance` must be", "> 0, got 0.0"],
}


@pytest.fixture
def folder(elsewhere, monkeypatch, fill):
    """A folder with documents and a filled store, where a newcomer stands."""
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    monkeypatch.setattr(huggingface_hub.hf_api.api, "endpoint", "http://127.0.0.1:9")
    (elsewhere / "docs").mkdir()
    (elsewhere / "docs/cats.md").write_text("# Cats\n\nThey purr.\n", encoding="utf-8")
    document = Document(
        document_id="docs/cats.md#0", text="They purr.", metadata={"source": "docs/cats.md"}
    )
    fill("faiss:filled", [document])
    return elsewhere


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_a_mistake_at_the_command_line_gets_its_message(mistake, folder, sift):
    captured = sift(*mistake(folder), code=2)
    assert captured.out == ""
    assert "s3cret" not in captured.err
    *notes, told = captured.err.splitlines()
    assert told.startswith("error: ")
    assert all(word in told for word in MISTAKES[mistake]), told
    assert not any(note.startswith("error") for note in notes)


@pytest.mark.slow
def test_a_full_disk_is_told_and_the_store_stays_as_it_was(folder, sift):
    (folder / "docs/dogs.md").write_text("# Dogs\n\nThey bark.\n" * 500, encoding="utf-8")
    code = """
import resource, sys
from sift_core.cli import run
from sift_core.cli.application import app

resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
sys.exit(run(lambda: app(["index", "docs", "--store", "faiss:filled"])))
"""
    finished = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=folder
    )
    told = finished.stderr.splitlines()[-1]
    assert finished.returncode == 2, finished.stderr
    assert told.startswith("error: ")
    assert "is there space" in told, told
    sift("search", "cats", "--store", "faiss:filled")


def test_a_framework_that_is_too_old_is_told_by_the_doctor(folder, monkeypatch, sift):
    pytest.importorskip("langchain_sift")
    distribution = folder / "old/langchain_core-0.2.43.dist-info"
    distribution.mkdir(parents=True)
    (distribution / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: langchain-core\nVersion: 0.2.43\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(str(folder / "old"))
    told = " ".join(sift("doctor", code=2).out.split())
    assert "langchain-core 0.2.43 does not fit langchain-sift, which needs " in told


ARRAYS = {
    "dimensions that differ": (
        (np.ones(384), np.ones((5, 768))),
        "must have 384 columns like the query, got 768; were both made by one model?",
    ),
    "an embedding of nothing": (
        (np.ones(4), np.array([[1.0, 0, 0, 0], [np.nan, 0, 0, 0]])),
        "must be finite, got nan at ",
    ),
    "one text instead of several": (
        (np.ones(4), np.ones(4)),
        "must have 2 dimension(s), got shape (4,)",
    ),
}


@pytest.mark.parametrize(("arrays", "message"), ARRAYS.values(), ids=ARRAYS)
def test_a_mistake_with_arrays_gets_its_message(arrays, message):
    with pytest.raises(InvalidInputError, match=re.escape(message)):
        select(*arrays, n_select=2)
