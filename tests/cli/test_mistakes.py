"""What a newcomer is told: the likeliest mistakes, each with the message that it gets.

Every message says what was wrong, what arrived and what to do. `{...}` stands for what the
machine adds.
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
from sift_core.cli import run
from sift_core.cli.application import app
from sift_core.cli.stores import StoreAddress, create_or_open_store, load_embedder
from sift_core.documents import index_documents

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


READS = "Read are .md, .rst, .txt, .py, .html and .pdf; the store was not touched"
FORMS = "a store must be faiss:FOLDER, qdrant:FOLDER or qdrant:http://HOST:6333"
MISTAKES = {
    no_index: "no index at faiss:.sift; make one: sift index FOLDER",
    store_of_another_kind: f"{FORMS}, got 'chroma:docs'",
    host_without_scheme: "'localhost:6333' looks like a host with a port; a server is written "
    "qdrant:http://localhost:6333",
    key_in_the_address: "the URL of a store must hold no user, password or key; put the server's "
    "key into the environment variable QDRANT_API_KEY",
    server_is_down: "Qdrant could not find the collection of qdrant:http://127.0.0.1:9: {...}; "
    "is the server up, and is the client's address right?",
    wrong_embedder: "the index at faiss:filled was made with the embedder 'all-MiniLM-L6-v2', not "
    "'bge-small'; leave --embedder out (and SIFT_EMBEDDER, and the settings file's), or index "
    "into another --store",
    embedder_with_a_typo: "there is no model folder './all-MiniLM-L6-v3'; pass a folder with a "
    "model of sentence-transformers, or an id on the hub",
    empty_question: "the question is empty; ask something",
    nothing_from_the_pipe: "the question is empty; ask something",
    no_model: "no model was named; pass --model, set SIFT_MODEL, or write `model` into sift.toml: "
    "an id on the hub, such as Qwen/Qwen2.5-0.5B-Instruct, or a folder with a causal model of "
    "transformers. (examples/tiny_lm of the repository runs everywhere, but is a toy that writes "
    "nonsense.)",
    model_with_a_typo: "there is no model folder 'examples/tiny_ml/'; pass a folder with a model "
    "of transformers, or an id on the hub",
    no_network: "the model 'somebody/some-model' is no folder here and was not downloaded before, "
    "and the hub cannot be asked for it ({...}); check spelling and network, or pass a folder with "
    "a model of transformers",
    no_such_gpu: "there is no device 'cuda:7' here {...}, only {...}; leave --device out to take "
    "the fastest that there is",
    folder_with_a_typo: "there is no file or folder 'dcos'; correct the path (the current folder "
    "is {...})",
    empty_folder: f"there is nothing to read in empty: no files. {READS}",
    binary_file: "there is nothing to read in photo.png: left out were 1 binary, no text: "
    f"photo.png. {READS}",
    another_folder_into_the_store: "nothing in the index at faiss:filled is of these PATHs; it "
    "holds docs/cats.md, which would be deleted. Pass those PATHs as well, call it from the same "
    "folder as then (names are relative to it), or take another --store",
    no_place_to_write: "'taken' is a file; a store needs a folder of its own",
    damaged_store: "{...}manifest.json' is no manifest of this library, or damaged: {...}; "
    "restore it, or index again into another folder",
    settings_with_a_typo: "the settings file 'sift.toml' has the unknown key 'sotre'; there are "
    "embedder, model, store and the tables [ask], [diagnose], [doctor], [index], [search]",
    secret_in_the_settings: "the settings file 'sift.toml' holds 'api_key'; secrets belong into "
    "the environment (QDRANT_API_KEY), where no file or backup keeps them: remove it",
    settings_that_are_no_toml: "the settings file 'sift.toml' is no TOML: {...}; a text stands "
    "in quotes, as in store = 'faiss:.sift'",
    more_chosen_than_candidates: "--candidates must be >= --n-select, got 10 and 20",
    lambda_of_zero: "`noise_variance` must be a finite number > 0, got 0.0",
}


@pytest.fixture(scope="module")
def minilm():
    return load_embedder("all-MiniLM-L6-v2")


@pytest.fixture
def folder(tmp_path, monkeypatch, minilm):
    """A folder with documents and a filled store, where a newcomer stands."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    monkeypatch.setattr(huggingface_hub.hf_api.api, "endpoint", "http://127.0.0.1:9")
    for name in ("SIFT_STORE", "SIFT_EMBEDDER", "SIFT_MODEL", "SIFT_CONFIG", "QDRANT_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/cats.md").write_text("# Cats\n\nThey purr.\n", encoding="utf-8")
    document = Document(
        document_id="docs/cats.md#0", text="They purr.", metadata={"source": "docs/cats.md"}
    )
    address = StoreAddress.parse("faiss:filled")
    with create_or_open_store(address, embedder_name=minilm.name, dimension=384) as source:
        index_documents(source, [document], minilm, progress=False)
    return tmp_path


def is_told(told, message):
    """Whether a message is the expected one; `{...}` stands for anything on its line."""
    pattern = ".+".join(re.escape(part) for part in message.split("{...}"))
    return re.fullmatch(pattern, told) is not None


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_a_mistake_at_the_command_line_gets_its_message(mistake, folder, capsys):
    arguments = mistake(folder)
    assert run(lambda: app(arguments)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "s3cret" not in captured.err
    told = captured.err.splitlines()[-1]
    assert is_told(told, f"error: {MISTAKES[mistake]}"), told


def test_a_full_disk_is_told_and_the_store_stays_as_it_was(folder):
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
    assert run(lambda: app(["search", "cats", "--store", "faiss:filled"])) == 0


def test_a_framework_that_is_too_old_is_told_by_the_doctor(folder, monkeypatch, capsys):
    distribution = folder / "old/langchain_core-0.2.43.dist-info"
    distribution.mkdir(parents=True)
    (distribution / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: langchain-core\nVersion: 0.2.43\n", encoding="utf-8"
    )
    pytest.importorskip("langchain_sift")
    monkeypatch.syspath_prepend(str(folder / "old"))
    assert run(lambda: app(["doctor"])) == 2
    told = " ".join(capsys.readouterr().out.split())
    assert (
        "langchain-core 0.2.43 does not fit langchain-sift, which needs <2,>=0.3.27; pip install "
        in told
    )


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
