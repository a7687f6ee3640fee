"""Several collections in one service: one model and one queue, each with routes of its own."""

import httpx
import pytest

from sift_core import InMemorySource
from sift_core.errors import CandidateSourceError, InvalidInputError
from sift_core.service import ServiceSettings, create_app
from tests.service.servers import CHAT, PATIENCE_S, serving

NOTES = ["a note: paint boats of paper with wax", "a note: water for tea"]


@pytest.fixture(scope="module")
def client(engine, source, embedder):
    notes = InMemorySource(embedder.embed_documents(NOTES), NOTES, embedder_name=embedder.name)
    app = create_app(
        engine,
        settings=ServiceSettings(model_name="tiny", api_key="secret"),
        name="guides",
        collections={"notes": (notes, embedder), "v1": (notes, embedder)},
    )
    key = {"authorization": "Bearer secret"}
    with serving(app) as url, httpx.Client(base_url=url, headers=key, timeout=PATIENCE_S) as one:
        yield one


def test_each_collection_is_listed_and_searched_on_its_own(client):
    listed = client.get("/collections").json()["data"]
    assert listed == [
        {"name": "guides", "path": ""},
        {"name": "notes", "path": "collections/notes/"},
        {"name": "v1", "path": "collections/v1/"},
    ]
    texts = {}
    for one in listed:
        found = client.post(f"/{one['path']}search", json={"query": "boat", "n_select": 9}).json()
        texts[one["name"]] = {chunk["text"] for chunk in found["columns"]["sift"]["chunks"]}
    assert texts["notes"] == set(NOTES)
    assert len(texts["guides"]) == 8
    assert not texts["guides"] & texts["notes"]


class _BrokenSource(InMemorySource):
    def fetch_batch(self, *_, **__):
        raise CandidateSourceError("the disk is gone")


def test_a_service_is_ready_once_the_stores_of_all_collections_answer(source, embedder):
    broken = _BrokenSource(embedder.embed_documents(NOTES), NOTES, embedder_name=embedder.name)
    app = create_app(source=source, embedder=embedder, collections={"notes": (broken, embedder)})
    with serving(app) as url:
        unready = httpx.get(f"{url}/ready", timeout=PATIENCE_S)
    assert unready.status_code == 503
    assert unready.json()["reasons"] == ["a store of documents does not answer"]


def test_the_same_model_answers_from_another_collection(client):
    answer = client.post("/collections/notes/v1/chat/completions", json=CHAT).json()
    ids = {one["id"] for one in answer["sift"]["sources"]}
    assert ids
    assert ids <= {"0", "1"}
    wrong = client.post("/collections/notes/v1/chat/completions", json={**CHAT, "model": "x"})
    assert wrong.status_code == 404
    assert wrong.json()["error"]["code"] == "model_not_found"


def test_a_collection_needs_the_key_too(client):
    refused = httpx.post(f"{client.base_url}/collections/notes/search", json={"query": "boat"})
    assert refused.status_code == 401
    assert httpx.get(f"{client.base_url}/collections").status_code == 401


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v1/embeddings", "/search"])
def test_a_collection_refuses_in_the_same_dialect(client, path):
    first, other = (client.post(f"{prefix}{path}", json={}) for prefix in ("", "/collections/v1"))
    assert first.status_code in (400, 422)
    assert (other.status_code, other.json()) == (first.status_code, first.json())


def test_the_time_to_learn_is_estimated_for_a_question(client):
    body = {**CHAT, "model": "tiny:fine_tune"}
    time = client.post("/learning-time", json=body).raise_for_status().json()
    assert time["n_steps"] == 4  # as the engine of these tests learns
    assert 1 <= time["n_chunks"] <= 4
    assert time["learning_s"] > 0
    assert time["longest_answer_s"] > 0


@pytest.mark.parametrize("name", ["a/b", "", "documents", "é"])
def test_a_name_must_stand_in_a_path_and_come_once(source, embedder, name):
    with pytest.raises(InvalidInputError, match="collection"):
        create_app(source=source, embedder=embedder, collections={name: (source, embedder)})
