"""A received folder runs no code and reaches no server before the user says so."""

import base64
import inspect
import pickle
import shlex
import sqlite3
import typing
from enum import Enum
from importlib import import_module
from pathlib import Path

import pytest
from qdrant_client import QdrantClient, models

import sift_core.cli.models as models_module
from sift_core.cli.application import _WITH_TABLES
from sift_core.cli.models import is_known
from sift_core.cli.settings import DEFAULT_MODEL, NEEDS_WORD
from sift_core.cli.stores import StoreAddress, open_for_writing
from tests.evil import Evil

COMMANDS = {
    "doctor": ["doctor"],
    "search": ["search", "How?"],
    "ask": ["ask", "How?", "--model", "some/model"],
    "diagnose": ["diagnose"],
    "index": ["index", "text.md"],
}


@pytest.fixture
def mark(elsewhere):
    """What the code of the received folder would make; its Qdrant folder is `data`."""
    Path("text.md").write_text("# Text\n\nIt says this.\n", encoding="utf-8")
    client = QdrantClient(path="data")
    client.create_collection(
        "sift",
        vectors_config=models.VectorParams(size=2, distance=models.Distance.COSINE),
        metadata={"sift_embedder_name": "all-MiniLM-L6-v2"},
    )
    client.close()
    mark = elsewhere / "code-ran"
    point = models.PointStruct.model_construct(
        id=1, vector=[1.0, 0.0], payload={"document_id": "a", "text": Evil(str(mark))}
    )
    key = base64.b64encode(pickle.dumps(1, protocol=4)).decode()
    with sqlite3.connect("data/collection/sift/storage.sqlite") as table:
        table.execute("INSERT INTO points VALUES (?, ?)", (key, pickle.dumps(point)))
    table.close()
    return mark


def settings(text, path="sift.toml"):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text, encoding="utf-8")


@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize("table", ["", "[{}]\n"], ids=["of all", "of the command"])
def test_no_command_opens_the_folder_that_a_received_file_names(refusal, mark, arguments, table):
    settings(f'{table.format(arguments[0])}store = "qdrant:./data"\n')
    told = refusal(*arguments)
    assert "'sift.toml' of the current folder has store = 'qdrant:./data'" in told
    assert f"sift --trust {arguments[0]}" in told
    assert not mark.exists()


@pytest.mark.parametrize("word", ["--trust", "--config", "user's file", "flag", "variable"])
def test_the_word_of_the_user_opens_it_which_runs_its_code(sift, mark, monkeypatch, word):
    options, here = [], 'store = "qdrant:./data"\n'
    if word == "--trust":
        settings(here)
        options = ["--trust"]
    elif word == "--config":
        settings(here)
        options = ["--config", "sift.toml"]
    elif word == "user's file":
        settings(here, "config/sift-rerank/sift.toml")
    elif word == "variable":
        monkeypatch.setenv("SIFT_STORE", "qdrant:./data")
    end = ["--store", "qdrant:./data"] if word == "flag" else []
    told = sift(*options, "doctor", *end).err
    assert mark.is_dir()
    note = "note: sift.toml sets store = 'qdrant:./data'\n"
    assert told == (note if word == "--trust" else "")


def test_a_flag_or_variable_that_goes_before_the_file_is_obeyed(refusal, mark, monkeypatch):
    settings('store = "qdrant:./data"\n')
    assert "no index at faiss:own" in refusal("search", "How?", "--store", "faiss:own")
    monkeypatch.setenv("SIFT_STORE", "faiss:own")
    assert "no index at faiss:own" in refusal("search", "How?")
    assert not mark.exists()


REFUSED = {
    "address": ("search", 'store = "qdrant:http://127.0.0.1:1"'),
    "Faiss folder": ("search", 'store = "faiss:data"'),
    "embedder in a folder": ("search", 'embedder = "./data"'),
    "embedder that is a folder": ("search", 'embedder = "data"'),
    "embedder never used": ("search", 'embedder = "someone/model"'),
    "model in a folder": ("ask", 'model = "./data"'),
    "model never used": ("ask", '[ask]\nmodel = "someone/model"'),
    "file to write": ("diagnose", '[diagnose]\nplot = "a.png"'),
    "file to read": ("diagnose", '[diagnose]\nqueries = "a.txt"'),
    "deletion": ("index", "[index]\nprune = true"),
}


@pytest.mark.parametrize(("command", "text"), REFUSED.values(), ids=REFUSED)
def test_what_else_a_received_file_does_not_choose(refusal, elsewhere, command, text):
    (elsewhere / "data").mkdir()
    settings(text)
    key = text.split("\n")[-1].split(" = ")[0]
    told = refusal(*COMMANDS[command][:2] if command != "ask" else ("ask", "How?"))
    assert f"of the current folder has {key} = " in told
    assert f"or say --{key} yourself" in told


def test_what_it_counts_and_the_usual_store_is_obeyed_without_a_word(refusal):
    settings('store = "faiss:.sift"\n[search]\nn-select = 12\ncandidates = 11\nkernel = "rbf"\n')
    assert "got 11 and 12" in refusal("search", "How?")


def test_a_model_that_was_used_before_may_be_named_and_is_shown(sift, monkeypatch):
    monkeypatch.setattr(models_module, "is_known", lambda name: name == "someone/model")
    settings('embedder = "someone/model"\n')
    told = sift("search", "How?", code=2).err
    assert told.startswith("note: sift.toml sets embedder = 'someone/model'\nerror: no index")


def test_a_secret_and_what_steers_a_terminal_are_not_shown(refusal):
    settings('store = "qdrant:https://me:hunter2@host"\n')
    assert "hunter2" not in refusal("doctor")
    settings('store = "qdrant:a\\u001b[2Jb"\n')
    assert "\x1b" not in refusal("doctor")


def test_every_option_that_is_a_text_needs_the_word():
    of_no_file = {"question", "paths", "context"}
    harmless = {"device", "model_name", "newest"}  # of torch; what clients say; a key of metadata
    found = set()
    for name in _WITH_TABLES:
        command = getattr(import_module(f"sift_core.cli.{name}"), name)
        for key, kind in typing.get_type_hints(command).items():
            kinds = [one for one in (*typing.get_args(kind), kind) if inspect.isclass(one)]
            is_text = any(
                issubclass(one, str | Path) and not issubclass(one, Enum) for one in kinds
            )
            found |= {key} if is_text else set()
    assert found - of_no_file - harmless == NEEDS_WORD - {"prune", "no_auth"}


def test_what_numba_would_obey_needs_the_word(refusal):
    settings("cache_dir: data\n", ".numba_config.yaml")
    assert "which Numba obeys" in refusal("search", "How?")
    assert "which Numba obeys" in refusal("eval", "retrieval")
    assert "no index at" in refusal("--trust", "search", "How?")


def test_what_matplotlib_would_obey_needs_the_word_where_it_draws(refusal):
    settings("figure.dpi: 1\n", "matplotlibrc")
    assert "which matplotlib obeys" in refusal("diagnose", "--plot", "a.png")
    assert "no index at" in refusal("diagnose")
    assert "no index at" in refusal("--trust", "diagnose", "--plot", "a.png")


@pytest.mark.parametrize("command", ["search", "ask", "diagnose", "index"])
@pytest.mark.parametrize("kind", ["faiss", "qdrant"])
@pytest.mark.parametrize("name", ["./evil", "evil", "~/evil", "someone/model", "it's $(evil)"])
def test_a_store_does_not_choose_its_embedder_by_itself(refusal, elsewhere, command, kind, name):
    (elsewhere / "evil").mkdir()
    settings("It says that.", "other.md")
    address = f"{kind}:store"
    with open_for_writing(StoreAddress.parse(address), embedder_name=name, dimension=2) as opened:
        opened.source.prepare(embedder_name=name, dimension=2)
    arguments = ["index", "other.md"] if command == "index" else COMMANDS[command]
    told = refusal(*arguments, "--store", address)
    assert f"the store {address} names the embedder {name!r}" in told
    assert f"say --embedder {shlex.quote(name)}\n" in told  # nothing that a shell would run


def test_an_embedder_is_known_that_is_the_default_or_was_downloaded(elsewhere, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(elsewhere / "cache"))
    assert is_known("all-MiniLM-L6-v2")
    assert is_known("sentence-transformers/all-MiniLM-L6-v2")
    assert is_known(DEFAULT_MODEL)
    wrong = (
        "someone/model",
        "/a",
        "../a",
        "a/b/c",
        "",
        "a\nb",
        "C:\\a",
        "someone/all-MiniLM-L6-v2",
    )
    assert not any(map(is_known, wrong))
    (elsewhere / "all-MiniLM-L6-v2").mkdir()
    assert not is_known("all-MiniLM-L6-v2")
