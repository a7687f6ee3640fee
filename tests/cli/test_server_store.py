"""Every command over a Qdrant server: the real client over real sockets, the local mode behind."""

import pytest
from qdrant_client import QdrantClient

from sift_core.cli import index, stores
from tests.sources.qdrant_rest import serving

pytestmark = pytest.mark.slow

TOPICS = ("cats", "dogs", "birds", "boats", "trains", "clouds")


@pytest.fixture
def store(elsewhere, monkeypatch, minilm):
    """The address of a collection that is not there yet; the current folder has `docs`."""
    (elsewhere / "docs").mkdir()
    for topic in TOPICS:
        text = "\n\n".join(f"## About {topic}, {n}\n\nFact {n} about {topic}." for n in range(3))
        (elsewhere / f"docs/{topic}.md").write_text(text * 20, encoding="utf-8")
    for module in (index, stores):
        monkeypatch.setattr(module, "load_embedder", lambda name, **_: minilm)
    client = QdrantClient(":memory:")
    with serving(client) as server:
        yield f"qdrant:{server.url}#handbook"
    client.close()


def test_index_search_diagnose_and_doctor(store, record, refusal, tmp_path):
    first = record("index", "docs", "--store", store)
    assert first["n_added"] == first["n_chunks"] > len(TOPICS)
    again = record("index", "docs", "--store", store)
    assert (again["n_added"], again["n_unchanged"]) == (0, first["n_chunks"])
    (tmp_path / "docs/boats.md").unlink()
    changed = record("index", "docs", "--store", store)
    assert changed["deleted_files"] == ["docs/boats.md"]
    assert changed["n_deleted"] > 0

    found = record("search", "facts about trains", "--store", store, "-n", "2")
    assert found["chunks"][0]["metadata"]["source"] == "docs/trains.md"
    told = record("diagnose", "--store", store, "--sample", "4")
    assert told["n_stored"] == changed["n_chunks"]
    state = record("doctor", "--store", store)["store"]
    assert state == {"n_chunks": changed["n_chunks"], "embedder": "all-MiniLM-L6-v2"}

    other = f"{store}-2"
    error = refusal("search", "trains", "--store", other)
    # A shell would take what follows an unquoted # for a comment.
    assert f"no index at {other}; make one: sift index FOLDER --store '{other}'" in error
