"""Every command over a Qdrant server: the real client over real sockets, the local mode behind."""

import json

import pytest
from qdrant_client import QdrantClient

from sift_core.cli import index_command, run, stores
from sift_core.cli.application import app
from sift_core.cli.stores import load_embedder
from tests.sources.qdrant_rest import serving

TOPICS = ("cats", "dogs", "birds", "boats", "trains", "clouds")


@pytest.fixture(scope="module")
def minilm():
    return load_embedder("all-MiniLM-L6-v2")


@pytest.fixture
def store(tmp_path, monkeypatch, minilm):
    """The address of a collection that is not there yet; the current folder has `docs`."""
    (tmp_path / "docs").mkdir()
    for topic in TOPICS:
        text = "\n\n".join(f"## About {topic}, {n}\n\nFact {n} about {topic}." for n in range(3))
        (tmp_path / f"docs/{topic}.md").write_text(text * 20, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for name in ("SIFT_STORE", "SIFT_EMBEDDER", "QDRANT_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    for module in (index_command, stores):
        monkeypatch.setattr(module, "load_embedder", lambda name: minilm)
    client = QdrantClient(":memory:")
    with serving(client) as server:
        yield f"qdrant:{server.url}#handbook"
    client.close()


def record(capsys, *arguments, code=0):
    assert run(lambda: app([*arguments, "--json"])) == code
    return json.loads(capsys.readouterr().out)


def test_index_search_diagnose_and_doctor(store, capsys, tmp_path):
    first = record(capsys, "index", "docs", "--store", store)
    assert first["n_added"] == first["n_chunks"] > len(TOPICS)
    again = record(capsys, "index", "docs", "--store", store)
    assert (again["n_added"], again["n_unchanged"]) == (0, first["n_chunks"])
    (tmp_path / "docs/boats.md").unlink()
    changed = record(capsys, "index", "docs", "--store", store)
    assert changed["vanished_files"] == ["docs/boats.md"]
    assert changed["n_deleted"] > 0

    found = record(capsys, "search", "facts about trains", "--store", store, "-n", "2")
    assert found["chunks"][0]["metadata"]["source"] == "docs/trains.md"
    told = record(capsys, "diagnose", "--store", store, "--sample", "4")
    assert told["n_stored"] == changed["n_chunks"]
    state = record(capsys, "doctor", "--store", store)["store"]
    assert state == {
        "address": store,
        "n_chunks": changed["n_chunks"],
        "embedder": "all-MiniLM-L6-v2",
    }


def test_a_collection_that_is_not_there_is_told(store, capsys):
    assert run(lambda: app(["search", "trains", "--store", store])) == 2
    error = capsys.readouterr().err
    assert f"no index at {store}; make one: sift index FOLDER --store '{store}'" in error
