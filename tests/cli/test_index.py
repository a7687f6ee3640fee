"""`sift index` makes a store equal to files: by real MiniLM into real Faiss and Qdrant."""

import json
import os
import subprocess
import sys

import pytest

from sift_core.cli import index_command, index_writing, run
from sift_core.cli.application import app
from sift_core.cli.stores import StoreAddress, load_embedder, open_store

CATS = "# Cats\n\nThey purr at night and sleep by day.\n"
DOGS = "# Dogs\n\nThey bark at strangers.\n"


@pytest.fixture(scope="module")
def minilm():
    return load_embedder("all-MiniLM-L6-v2")


@pytest.fixture
def folder(tmp_path, monkeypatch, minilm):
    """A folder with two texts; the model is loaded once for all tests."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/cats.md").write_text(CATS, encoding="utf-8")
    (tmp_path / "docs/dogs.md").write_text(DOGS, encoding="utf-8")
    (tmp_path / "docs/logo.png").write_bytes(b"\x89PNG")
    monkeypatch.chdir(tmp_path)
    for name in ("SIFT_STORE", "SIFT_EMBEDDER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(index_command, "load_embedder", lambda name: minilm)
    return tmp_path


@pytest.fixture(params=["faiss:store", "qdrant:store#pets"])
def store(request):
    return request.param


def index(capsys, *arguments, code=0):
    """Return what the command wrote to stdout and stderr."""
    assert run(lambda: app(["index", *arguments])) == code
    return capsys.readouterr()


def record(capsys, *arguments):
    return json.loads(index(capsys, *arguments, "--json").out)


def stored(address):
    with open_store(StoreAddress.parse(address)) as source:
        return len(source.content_ids())


def test_a_second_run_embeds_nothing_and_a_change_replaces_what_changed(capsys, folder, store):
    first = record(capsys, "docs", "--store", store)
    assert (first["n_files"], first["n_added"], first["n_deleted"]) == (2, 2, 0)
    assert first["skipped"] == [
        {"source": "docs/logo.png", "reason": "unknown_suffix", "detail": ".png"}
    ]
    again = record(capsys, "docs", "--store", store)
    assert (again["n_added"], again["n_unchanged"], again["n_deleted"]) == (0, 2, 0)
    (folder / "docs/cats.md").write_text("# Cats\n\nThey hunt mice.\n", encoding="utf-8")
    changed = record(capsys, "docs", "--store", store)
    assert (changed["n_added"], changed["n_deleted"], changed["vanished_files"]) == (1, 1, [])
    (folder / "docs/dogs.md").unlink()
    gone = record(capsys, "docs", "--store", store)
    assert (gone["n_deleted"], gone["vanished_files"]) == (1, ["docs/dogs.md"])
    assert stored(store) == 1


def test_the_summary_says_what_was_done_left_out_and_comes_next(capsys, folder):
    out, err = index(capsys, "docs")
    assert "2 files, 2 chunks in faiss:.sift (all-MiniLM-L6-v2): 2 new, 0 unchanged" in out
    assert "  1 unknown suffix: docs/logo.png\n" in out
    assert out.endswith('Next: sift search "your question"\n')
    assert err == "Reading 2 files …\nEmbedding 2 chunks …\n"
    assert "\x1b" not in out + err


def test_an_index_of_other_files_is_not_replaced(capsys, folder):
    index(capsys, "docs/cats.md")
    error = index(capsys, "docs/dogs.md", code=2).err
    assert "is of these PATHs; it holds docs/cats.md, which would be deleted" in error
    assert stored("faiss:.sift") == 1
    assert record(capsys, "docs/cats.md", "docs/dogs.md")["n_added"] == 1


def test_a_file_that_cannot_be_read_keeps_its_chunks(capsys, folder):
    index(capsys, "docs")
    (folder / "docs/dogs.md").unlink()
    (folder / "docs/dogs.md").symlink_to(folder / "away/dogs.md")  # a disk that is not mounted
    found = record(capsys, "docs")
    assert (found["n_deleted"], found["kept_files"]) == (0, ["docs/dogs.md"])
    assert stored("faiss:.sift") == 2


def test_nothing_is_deleted_where_nothing_was_readable(capsys, folder):
    index(capsys, "docs")
    for name in ("cats.md", "dogs.md"):
        (folder / "docs" / name).write_bytes(b"\0")
    error = index(capsys, "docs", code=2).err
    assert "there is nothing to read in docs: left out were 2 binary, no text" in error
    assert stored("faiss:.sift") == 2


def test_another_embedder_is_refused_before_it_is_loaded(capsys, folder):
    index(capsys, "docs")
    error = index(capsys, "docs", "--embedder", "no-such-model", code=2).err
    assert "was made with the embedder 'all-MiniLM-L6-v2', not 'no-such-model'" in error


def test_ctrl_c_keeps_what_was_stored_and_the_same_command_goes_on(
    capsys, folder, monkeypatch, minilm
):
    text = "\n\n".join(f"# Part {n}\n\n" + f"word{n} " * 60 for n in range(8))
    (folder / "docs/long.md").write_text(text, encoding="utf-8")
    embed = minilm.embed_documents
    sizes = []

    def embed_until_interrupted(texts):
        if sum(sizes) >= 4:
            raise KeyboardInterrupt
        sizes.append(len(texts))
        return embed(texts)

    monkeypatch.setattr(index_writing, "CHUNKS_A_WRITE", 4)
    with monkeypatch.context() as patched:
        patched.setattr(minilm, "embed_documents", embed_until_interrupted)
        error = index(capsys, "docs", code=130).err
    assert "Stopped. 4 of " in error
    assert stored("faiss:.sift") == 4
    assert record(capsys, "docs")["n_unchanged"] == 4


def test_chunks_are_embedded_to_their_end(folder, minilm):
    from sift_core.cli.index_writing import chunker_for

    text = "\n\n".join(f"def f_{n}(a, b):\n    return a[{n}] + b['x.y/z{n}']" for n in range(200))
    chunks = chunker_for(minilm).split(text, format="text", document_id="x")
    assert len(chunks) > 10
    assert max(minilm.count_tokens(chunk.text) for chunk in chunks) <= minilm.max_tokens


def test_names_of_files_cannot_steer_a_terminal(capsys, folder):
    (folder / "docs/\x1b[31mred[bold].xyz").touch()
    out = index(capsys, "docs", "--verbose").out
    assert "\x1b" not in out
    assert "[31mred[bold].xyz" in out


def test_a_folder_that_cannot_be_written_is_told(capsys, folder):
    (folder / "file").touch()
    error = index(capsys, "docs", "--store", f"faiss:file{os.sep}store", code=2).err
    assert "could not save into" in error
    assert "file/store'" in error


def test_a_narrower_path_deletes_nothing_that_is_still_there(capsys, folder, store):
    index(capsys, "docs", "--store", store)
    error = index(capsys, "docs/cats.md", "--store", store, code=2).err
    assert "the PATHs leave out docs/dogs.md, which the index at" in error
    assert "is still there. Pass those PATHs as well, or --prune to delete them" in error
    assert stored(store) == 2
    pruned = record(capsys, "docs/cats.md", "--store", store, "--prune")
    assert (pruned["n_deleted"], pruned["vanished_files"]) == (1, ["docs/dogs.md"])
    assert stored(store) == 1


def test_what_is_left_out_now_is_not_called_gone(capsys, folder):
    index(capsys, "docs")
    (folder / "docs/cats.md").write_bytes("Katzen mögen Mäuse".encode("latin-1"))
    (folder / "docs/dogs.md").write_text(DOGS * 200, encoding="utf-8")
    (folder / "docs/birds.md").write_text("# Birds\n\nThey sing.\n", encoding="utf-8")
    out = index(capsys, "docs", "--max-file-size", "0.005").out
    assert "Left out now, and deleted from the store: docs/cats.md, docs/dogs.md" in out
    assert "No longer" not in out
    assert "1 no valid text in its encoding: docs/cats.md" in out
    assert "1 too large: docs/dogs.md" in out


def test_the_second_of_two_writers_is_told_at_once(capsys, folder):
    index(capsys, "docs")
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from pathlib import Path\n"
            "from sift_core.cli.index_lock import only_writer\n"
            "with only_writer(Path('.sift')):\n"
            "    print('held', flush=True)\n"
            "    input()\n",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout.readline() == "held\n"
        error = index(capsys, "docs", code=2).err
        assert "another sift index is writing into '.sift'; wait until it has ended" in error
        holder.communicate("\n")
    assert record(capsys, "docs")["n_unchanged"] == 2


def test_a_word_without_end_is_cut(folder, minilm):
    from sift_core.cli.index_writing import CHARACTERS_A_TOKEN, MAX_TOKENS, chunker_for

    chunks = chunker_for(minilm).split("x" * 50_000, format="text", document_id="x")
    assert "".join(chunk.text for chunk in chunks) == "x" * 50_000
    assert max(len(chunk.text) for chunk in chunks) <= (MAX_TOKENS + 1) * CHARACTERS_A_TOKEN


def test_ctrl_c_while_reading_says_that_nothing_was_done(capsys, folder, monkeypatch):
    from sift_core.documents import reader

    def interrupted(file, chunker):
        raise KeyboardInterrupt

    monkeypatch.setattr(reader, "read_file", interrupted)
    assert index(capsys, "docs", code=130).err.endswith(
        "Stopped while reading. The store is as it was.\n"
    )
    assert not (folder / ".sift").exists()


def test_a_file_that_most_is_of_is_named_before_it_is_embedded(folder, monkeypatch, capsys):
    monkeypatch.setattr(index_writing, "MANY_CHUNKS", 2)
    text = "\n\n".join(f"# Part {n}\n\n" + f"word{n} " * 60 for n in range(12))
    (folder / "docs/dump.md").write_text(text, encoding="utf-8")
    err = index(capsys, "docs").err
    assert "docs/dump.md alone makes " in err
    assert "new chunks.\nEmbedding" in err


def test_a_log_gets_a_line_now_and_then(monkeypatch, capsys):
    from sift_core.cli import index_progress
    from sift_core.cli.showing_text import stderr_console

    monkeypatch.setattr(index_progress, "SECONDS_A_LINE", 0.0)
    with index_progress.progress(stderr_console(), "Embedding 200 chunks", 200) as move:
        for _ in range(200):
            move(1)
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["Embedding 200 chunks …", *(f"  {n} %" for n in range(10, 101, 10))]
