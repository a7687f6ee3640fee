"""Addresses of stores, and what opening says where something is wrong."""

import os
import pickle
import sqlite3
from contextlib import closing

import numpy as np
import pytest

from sift_core import Document, Query
from sift_core.cli.stores import StoreAddress, open_for_writing, open_store
from sift_core.documents import index_documents
from sift_core.errors import CandidateSourceError, InvalidInputError
from sift_core.testing import HashingEmbedder

DOCUMENTS = [
    Document(document_id="a.md#0", text="cats purr", metadata={"source": "a.md"}),
    Document(document_id="plain", text="dogs bark"),
]


@pytest.mark.parametrize(
    ("text", "kind", "location", "collection"),
    [
        ("faiss:.sift", "faiss", ".sift", "sift"),
        ("faiss:a#b", "faiss", "a#b", "sift"),
        ("qdrant:data/q", "qdrant", "data/q", "sift"),
        ("qdrant:data#docs", "qdrant", "data", "docs"),
        ("qdrant:https://host:6333#docs", "qdrant", "https://host:6333", "docs"),
    ],
)
def test_an_address_is_read_and_written_alike(text, kind, location, collection):
    address = StoreAddress.parse(text)
    assert (address.kind, address.location, address.collection) == (kind, location, collection)
    assert str(address) == text


WRONG = {
    "no kind": ("data", "a store must be faiss:FOLDER"),
    "another kind": ("chroma:data", "a store must be faiss:FOLDER"),
    "no place": ("faiss:", "a store must be"),
    "a host": ("qdrant:localhost:6333", "written qdrant:http://localhost:6333"),
    "a password": ("qdrant:https://me:hunter2@host", "QDRANT_API_KEY"),
    "a key": ("qdrant:https://host?api_key=hunter2", "QDRANT_API_KEY"),
    "a bare password": ("https://me:hunter2@host", "a store must be"),
    "a password without http": ("qdrant://me:hunter2@host", "a store must be"),
    "a password for Faiss": ("faiss://me:hunter2@host", "a store must be"),
    "a password before a host": ("qdrant:me:hunter2@host:6333/x", "a user and password"),
    "a password with a hash": ("qdrant:https://me:hunt#hunter2@host", "QDRANT_API_KEY"),
    "a key of a collection": ("qdrant:https://host#docs?key=hunter2", "QDRANT_API_KEY"),
    "half an address": ("qdrant:http://[::1", "a store must be"),
    "no port": ("qdrant:http://host:99999999", "a store must be"),
    "no user's home": ("faiss:~no-such-user/x", "no user '~no-such-user'"),
    "another scheme": ("qdrant:ftp://host", "a store must be"),
    "a URL for Faiss": ("faiss:http://host", "a store must be"),
}


@pytest.mark.parametrize(("text", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_address_is_refused_and_secrets_are_not_repeated(text, message):
    with pytest.raises(InvalidInputError, match=message) as refusal:
        StoreAddress.parse(text)
    assert "hunter2" not in str(refusal.value)


@pytest.mark.parametrize("kind", ["faiss", "qdrant"])
def test_a_tilde_is_the_home_folder(kind, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    address = StoreAddress.parse(f"{kind}:~/x")
    assert address.location == os.path.expanduser("~/x") != "~/x"
    assert StoreAddress.parse(str(address)) == address


@pytest.fixture(params=["faiss", "qdrant"])
def address(request, tmp_path):
    return StoreAddress.parse(f"{request.param}:{tmp_path / 'store'}")


def fill(address):
    embedder = HashingEmbedder()
    dimension = embedder.embed_query("x").shape[0]
    with open_for_writing(address, embedder_name=embedder.name, dimension=dimension) as opened:
        index_documents(opened.source, DOCUMENTS, embedder, progress=False)
    return embedder


def test_a_store_remembers_its_embedder_and_the_files_of_its_chunks(address):
    embedder = fill(address)
    with open_store(address) as source:
        assert source.embedder_name == embedder.name
        assert len(source.content_ids()) == 2
    with open_for_writing(address) as opened:
        assert sorted(opened.files().values()) == ["a.md", "plain"]
        assert set(opened.files()) == opened.source.content_ids()


def test_another_embedder_is_refused(address):
    fill(address)
    with (
        pytest.raises(InvalidInputError, match=r"made with the embedder .* not 'other'"),
        open_store(address, embedder_name="other"),
    ):
        pass


def test_where_there_is_no_index_nothing_is_made(address, tmp_path):
    with pytest.raises(InvalidInputError, match="make one: sift index"), open_store(address):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_collection_that_is_not_there_is_no_index(tmp_path):
    fill(StoreAddress.parse(f"qdrant:{tmp_path}"))
    other = StoreAddress.parse(f"qdrant:{tmp_path}#other")
    with pytest.raises(InvalidInputError, match="no index at"), open_store(other):
        pass


# The client leaves the lock's file open where it cannot take the lock.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_folder_in_use_is_told(tmp_path):
    address = StoreAddress.parse(f"qdrant:{tmp_path}")
    fill(address)
    with open_store(address):
        with pytest.raises(CandidateSourceError, match="no other process"), open_store(address):
            pass


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("x", encoding="utf-8")
    for kind in ("faiss", "qdrant"):
        address = StoreAddress.parse(f"{kind}:{tmp_path / 'file' / 'store'}")
        with (
            pytest.raises(CandidateSourceError, match=r"may write|may this user"),
            open_for_writing(address, embedder_name="x", dimension=3),
        ):
            pass


def in_points(change):
    """Return the damage of what Qdrant's SQLite file holds of a point."""

    def damage(path):
        with closing(sqlite3.connect(path)) as file, file:
            for row, point in file.execute("SELECT rowid, point FROM points").fetchall():
                file.execute("UPDATE points SET point = ? WHERE rowid = ?", (change(point), row))

    return damage


def without_payload(point):
    record = pickle.loads(point)
    record.__dict__["payload"] = [1]
    return pickle.dumps(record)


POINTS, META = "collection/sift/storage.sqlite", "meta.json"
DAMAGES = {
    "a list": (META, lambda path: path.write_bytes(b"[1, 2]")),
    "deep": (META, lambda path: path.write_bytes(b"[" * 100_000)),
    "no text": (META, lambda path: path.write_bytes(b"\xff\xfe" + path.read_bytes())),
    "an empty mapping": (META, lambda path: path.write_bytes(b"{}")),
    "no pickle": (POINTS, in_points(lambda point: b"damaged")),
    "half a pickle": (POINTS, in_points(lambda point: point[: len(point) // 2])),
    "another class": (
        POINTS,
        in_points(lambda point: point.replace(b"PointStruct", b"PointStrict")),
    ),
    "no point": (POINTS, in_points(lambda point: pickle.dumps({"id": 3}))),
    "no payload": (POINTS, in_points(without_payload)),
    "another text": (POINTS, in_points(lambda point: point.replace(b"cats purr", b"cats bark"))),
    "another key": (POINTS, in_points(lambda point: point.replace(b"source", b"sourse"))),
    "no database": (POINTS, lambda path: path.write_bytes(b"damaged" * 999)),
    "half a database": (POINTS, lambda path: path.write_bytes(path.read_bytes()[:5000])),
}


@pytest.mark.parametrize(("name", "damage"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_folder_of_qdrant_is_named(tmp_path, name, damage):
    """It counts neither as empty nor as unchanged; `sift index` asks for the files first."""
    address = StoreAddress.parse(f"qdrant:{tmp_path / 'store'}")
    fill(address)
    damage(tmp_path / "store" / name)
    with (
        pytest.raises(CandidateSourceError, match=r"store'?.*(restore|be restored)") as told,
        open_for_writing(address) as store,
    ):
        store.files()
    assert str(tmp_path / "store") in str(told.value)
    assert len(str(told.value)) < 1000


@pytest.mark.parametrize("name", ["another text", "no payload"])
def test_a_text_that_was_damaged_is_not_returned(tmp_path, name):
    address = StoreAddress.parse(f"qdrant:{tmp_path / 'store'}")
    fill(address)
    path, damage = DAMAGES[name]
    damage(tmp_path / "store" / path)
    embedder = HashingEmbedder()
    query = Query(text="cats", embedding=embedder.embed_query("cats"))
    with open_store(address) as source:
        for read in (
            lambda: source.fetch(query, 2),
            lambda: source.sample(2, np.random.default_rng(0)),
            lambda: index_documents(source, DOCUMENTS, embedder, progress=False),
        ):
            with pytest.raises(CandidateSourceError, match=r"store'?.*(restore)"):
                read()
