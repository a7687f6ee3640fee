"""What `sift index` remembers saves reading and embedding, and never decides what is stored."""

import json
import sys
from pathlib import Path

import pytest

from sift_core.cli import index_command, run
from sift_core.cli.application import app
from sift_core.cli.index_memory import NAME, FileMemory
from sift_core.cli.stores import StoreAddress, create_or_open_store, open_store
from sift_core.documents import Chunker, find_files, index_documents, read_found
from sift_core.sources import content_id
from sift_core.testing import HashingEmbedder

EMBEDDER = HashingEmbedder(32)


class CountingEmbedder(HashingEmbedder):
    """Has what the command asks of a sentence-transformers model."""

    max_tokens = 64

    def count_tokens(self, text):
        return len(text.split()) + 2


@pytest.fixture
def loads(monkeypatch, tmp_path):
    """How often an embedder was loaded; the current folder has two texts and a broken one."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/cats.md").write_text("# Cats\n\nThey purr.\n", encoding="utf-8")
    (tmp_path / "docs/dogs.md").write_text("# Dogs\n\nThey bark.\n", encoding="utf-8")
    (tmp_path / "docs/data.txt").write_bytes(b"a\0b")
    monkeypatch.chdir(tmp_path)
    names = []

    def load(name):
        names.append(name)
        return CountingEmbedder(32)

    monkeypatch.setattr(index_command, "load_embedder", load)
    monkeypatch.setattr(index_command, "DEFAULT_EMBEDDER", EMBEDDER.name)
    return names


@pytest.fixture(params=["faiss:store", "qdrant:store#pets"])
def address(request):
    return StoreAddress.parse(request.param)


def index(capsys, address, *paths, code=0):
    assert run(lambda: app(["index", *(paths or ["docs"]), "--store", str(address), "--json"])) == (
        code
    )
    out = capsys.readouterr().out
    return json.loads(out) if out else None


def find_memory(address):
    return Path(address.location, NAME)


def test_nothing_is_loaded_where_nothing_changed(capsys, loads, address):
    first = index(capsys, address)
    again = index(capsys, address)
    assert len(loads) == 1
    assert (again["n_added"], again["n_unchanged"], again["n_files"]) == (0, 2, 2)
    assert again["skipped"] == first["skipped"]
    assert again["skipped"][0]["reason"] == "binary"


def test_only_a_changed_file_is_read(capsys, loads, address, monkeypatch, tmp_path):
    from sift_core.documents import reader

    index(capsys, address)
    (tmp_path / "docs/cats.md").write_text("# Cats\n\nThey hunt.\n", encoding="utf-8")
    read = []
    real = reader.read_file
    monkeypatch.setattr(reader, "read_file", lambda f, c: read.append(f.source) or real(f, c))
    record = index(capsys, address)
    assert read == ["docs/cats.md"]
    assert (record["n_added"], record["n_unchanged"], record["n_deleted"]) == (1, 1, 1)
    assert index(capsys, address)["n_unchanged"] == 2
    assert len(loads) == 2


def test_a_vanished_file_is_deleted_without_a_model(capsys, loads, address, tmp_path):
    index(capsys, address)
    (tmp_path / "docs/cats.md").unlink()
    record = index(capsys, address)
    assert (record["n_deleted"], record["vanished_files"]) == (1, ["docs/cats.md"])
    assert len(loads) == 1
    with open_store(address) as source:
        assert len(source.content_ids()) == 1


def test_what_someone_deleted_from_the_store_is_read_again(capsys, loads, address):
    index(capsys, address)
    with open_store(address) as source:
        source.remove(sorted(source.content_ids())[:1])
        source.complete()
    assert index(capsys, address)["n_added"] == 1
    with open_store(address) as source:
        assert len(source.content_ids()) == 2


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"readers": {}, "files": {}}',
        '{"readers": null}',
        "\udcff",
    ],
)
def test_a_memory_of_something_else_is_no_memory(capsys, loads, address, content):
    index(capsys, address)
    memory = find_memory(address)
    memory.write_bytes(content.encode("utf-8", "surrogateescape"))
    assert index(capsys, address)["n_unchanged"] == 2
    assert len(loads) == 2
    assert index(capsys, address)["n_unchanged"] == 2
    assert len(loads) == 2


@pytest.mark.parametrize(
    "spoil",
    [
        lambda record: record["readers"].update(pypdf="0.1"),
        lambda record: record["files"]["docs/cats.md"].update(reason="gone"),
        lambda record: record["files"].update({"docs/cats.md": None}),
        lambda record: record["files"]["docs/cats.md"].update(more=1),
    ],
)
def test_other_readers_or_unknown_fields_are_no_memory(capsys, loads, address, spoil):
    index(capsys, address)
    memory = find_memory(address)
    record = json.loads(memory.read_text(encoding="utf-8"))
    spoil(record)
    memory.write_text(json.dumps(record), encoding="utf-8")
    assert index(capsys, address)["n_unchanged"] == 2
    assert len(loads) == 2


def test_a_memory_that_cannot_be_written_is_no_error(capsys, loads, address, tmp_path):
    (tmp_path / "store" / f"{NAME}.new").mkdir(parents=True)
    assert index(capsys, address)["n_added"] == 2
    assert index(capsys, address)["n_unchanged"] == 2
    assert len(loads) == 2


def test_a_file_that_was_unreadable_is_tried_again(capsys, loads, address, tmp_path):
    (tmp_path / "docs/away.md").symlink_to(tmp_path / "disk/away.md")
    index(capsys, address)
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk/away.md").write_text("# Away\n\nBack.\n", encoding="utf-8")
    assert index(capsys, address)["n_added"] == 1


def test_it_agrees_with_what_index_documents_stores(loads, address, tmp_path):
    found = find_files(["docs"])
    reading = read_found(found, Chunker(64))
    with create_or_open_store(address, embedder_name=EMBEDDER.name, dimension=32) as source:
        index_documents(source, reading.documents, EMBEDDER, progress=False)
        stored = {
            content_id(document): document.metadata["source"] for document in reading.documents
        }
        memory = FileMemory(address, EMBEDDER.name)
        assert memory.recall(found, stored).to_read.files == found.files
        memory.remember(reading, ())
        again = FileMemory(address, EMBEDDER.name).recall(found, stored)
        assert again.to_read.files == ()
        assert set().union(*again.unchanged.values()) == source.content_ids()
        other = FileMemory(address, "another").recall(found, stored)
        assert other.to_read.files == found.files


def test_what_lacks_a_package_stays_as_it_is_stored(capsys, loads, address, tmp_path, monkeypatch):
    (tmp_path / "docs/page.html").write_text("<h1>Birds</h1><p>They sing.", encoding="utf-8")
    assert index(capsys, address)["n_added"] == 3
    (tmp_path / "docs/page.html").write_text("<h1>Birds</h1><p>They fly.", encoding="utf-8")
    with monkeypatch.context() as without:
        without.delitem(sys.modules, "sift_core.documents.html")
        without.setitem(sys.modules, "markdownify", None)
        record = index(capsys, address)
    assert (record["n_unchanged"], record["n_deleted"]) == (2, 0)
    assert record["kept_files"] == ["docs/page.html"]
    (skipped,) = [path for path in record["skipped"] if path["source"] == "docs/page.html"]
    assert skipped["reason"] == "missing_package"
    assert "install it with `pip install 'sift-rerank[files]'`" in skipped["detail"]
    record = index(capsys, address)
    assert (record["n_added"], record["n_deleted"]) == (1, 1)
