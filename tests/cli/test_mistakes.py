"""What a newcomer is told: the likeliest mistakes, and the words that each must get.

Every message is one line that says what was wrong, what arrived and what to do.
"""

import io

import huggingface_hub.hf_api
import pytest

from sift_core import Document
from sift_core.cli import application
from tests.cli.test_application import python

FILES = {
    "docs/cats.md": b"# Cats\n\nThey purr.\n",
    "photo.png": b"\x89PNG\r\n\x1a\n\0\0",
    "taken": b"a file",
    "damaged/manifest.json": b"{",
    "no.toml": b"store = faiss:filled\n",
}
SEARCH = "search How? --store faiss:filled"
ASK = "ask How? --store faiss:filled"
MISTAKES = {
    "search How?": ["no index at faiss:.sift", "sift index FOLDER"],
    "search How? --store qdrant:https://:s3cret@a.org": ["user, password or key", "QDRANT_API_KEY"],
    "search How? --store qdrant:http://127.0.0.1:9": ["//127.0.0.1:9", "is the server up"],
    "search How? --store faiss:damaged": ["manifest.json", "damaged", "restore it"],
    f"{SEARCH} --embedder bge-small": ["'all-MiniLM-L6-v2', not 'bge-small'", "leave --embedder"],
    "search - --store faiss:filled": ["the question is empty", "ask something"],
    f"{ASK} --model examples/tiny_ml/": ["no model folder 'examples/tiny_ml/'", "an id on the hub"],
    f"{ASK} --model somebody/some-model": ["'somebody/some-model'", "not downloaded", "network"],
    f"{ASK} --model random --device cuda:99": ["on device 'cuda:99'"],
    "index docs --embedder ./all-MiniLM-L6-v3": ["no model folder", "sentence-transformers"],
    "index empty": ["nothing to read in empty", "no files", ".md", "the store was not touched"],
    "index photo.png": ["nothing to read in photo.png", "1 binary, no text"],
    "index docs --store faiss:taken": ["'taken' is a file", "a folder of its own"],
    "--config no.toml search How?": ["'no.toml' is no TOML", "in quotes"],
}


@pytest.fixture
def folder(elsewhere, monkeypatch, fill, random_model):
    """A folder with documents and a filled store, where a newcomer stands."""
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    monkeypatch.setattr(huggingface_hub.hf_api.api, "endpoint", "http://127.0.0.1:9")
    for name, content in FILES.items():
        (elsewhere / name).parent.mkdir(exist_ok=True)
        (elsewhere / name).write_bytes(content)
    (elsewhere / "empty").mkdir()
    (elsewhere / "random").symlink_to(random_model)
    document = Document(
        document_id="docs/cats.md#0", text="They purr.", metadata={"source": "docs/cats.md"}
    )
    fill("faiss:filled", [document])
    return elsewhere


@pytest.mark.parametrize(("command", "words"), MISTAKES.items(), ids=MISTAKES)
@pytest.mark.usefixtures("folder")
def test_a_mistake_at_the_command_line_gets_its_message(command, words, sift):
    captured = sift(*command.split(" "), code=2)
    assert captured.out == ""
    assert "s3cret" not in captured.err
    *notes, told = captured.err.splitlines()
    assert told.startswith("error: ")
    assert all(word in told for word in words), told
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
    told = python(code, code=2).stderr.splitlines()[-1]
    assert told.startswith("error: ")
    assert "is there space" in told, told
    sift("search", "cats", "--store", "faiss:filled")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("chat", "sift ask --chat"),
        ("query", "sift search QUESTION"),
        ("retrieve", "sift search QUESTION"),
        ("rag", "sift ask QUESTION"),
        ("serch", "search"),
        ("calibrat", "calibrate"),
        ("version", "sift --version"),
    ],
)
def test_an_unknown_command_gets_the_one_that_is_meant(typed, meant, sift):
    assert f"Did you mean '{meant}'" in sift(typed, "How?", code=2).err


def test_every_word_of_other_tools_leads_to_a_command_of_ours():
    assert not application._MEANT.keys() & application._COMMANDS.keys()
    for meant in application._MEANT.values():
        command = meant.split()[0]
        assert command in application._COMMANDS or command.startswith("--")
