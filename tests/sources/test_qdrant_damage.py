"""A folder of Qdrant that was damaged is named, and counts neither as empty nor as unchanged."""

import pickle
import sqlite3
from contextlib import closing

import numpy as np
import pytest

from sift_core import Document, Query
from sift_core.cli.store_addresses import StoreAddress
from sift_core.cli.stores import open_for_writing, open_store
from sift_core.documents import index_documents
from sift_core.errors import CandidateSourceError
from sift_core.testing import HashingEmbedder

DOCUMENTS = [
    Document(document_id="a.md#0", text="cats purr", metadata={"source": "a.md"}),
    Document(document_id="plain", text="dogs bark"),
]


def filled(folder):
    """Return the address of a folder with two documents."""
    address, embedder = StoreAddress.parse(f"qdrant:{folder / 'store'}"), HashingEmbedder()
    with open_for_writing(address, embedder_name=embedder.name, dimension=64) as it:
        index_documents(it.source, DOCUMENTS, embedder, progress=False)
    return address


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
    "an empty mapping": (META, lambda path: path.write_bytes(b"{}")),
    "no pickle": (POINTS, in_points(lambda point: b"damaged")),
    "no payload": (POINTS, in_points(without_payload)),
    "another text": (POINTS, in_points(lambda point: point.replace(b"cats purr", b"cats bark"))),
    "another key": (POINTS, in_points(lambda point: point.replace(b"source", b"sourse"))),
    "no database": (POINTS, lambda path: path.write_bytes(b"damaged" * 999)),
}


@pytest.mark.parametrize(("name", "damage"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_folder_of_qdrant_is_named_and_not_read_from(tmp_path, name, damage):
    """It counts neither as empty nor as unchanged; `sift index` asks for the files first."""
    address, embedder = filled(tmp_path), HashingEmbedder()
    damage(tmp_path / "store" / name)
    with (
        pytest.raises(CandidateSourceError, match=r"store'?.*(restore|be restored)") as told,
        open_for_writing(address) as store,
    ):
        store.files()
    assert str(tmp_path / "store") in str(told.value)
    assert len(str(told.value)) < 1000
    query = Query(text="cats", embedding=embedder.embed_query("cats"))
    for read in (
        lambda source: source.fetch(query, 2),
        lambda source: source.sample(2, np.random.default_rng(0)),
        lambda source: index_documents(source, DOCUMENTS, embedder, progress=False),
    ):
        with (
            pytest.raises(CandidateSourceError, match=r"store'?.*restore"),
            open_store(address) as source,
        ):
            read(source)
