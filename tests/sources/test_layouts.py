"""Payloads as other tools write them, and what they are read as."""

import json
from contextlib import closing

import pytest

from sift_core.sources.layouts import Entry, read_entry
from sift_core.testing import HashingEmbedder
from tests.service.servers import TEXTS, service

NODE = json.dumps({"text": "t", "start_char_idx": 7, "class_name": "TextNode"})
DOCUMENT = json.dumps({"text_resource": {"text": "t"}})
EMPTY = json.dumps({"text": ""})

# Written by hand from payloads that the tools stored; tests/cli has the tools themselves.
PAYLOADS = {
    "ours, or a caller's": ({"text": "t", "a": 1}, None, Entry("t", {"a": 1})),
    "LangChain": ({"page_content": "t", "metadata": {"a": 1}}, None, Entry("t", {"a": 1})),
    "LangChain without metadata": (
        {"page_content": "t", "metadata": None},
        None,
        Entry("t", {"metadata": None}),
    ),
    "Haystack": (
        {"id": "x", "content": "t", "meta": {"a": 1}, "blob": None, "score": None},
        None,
        Entry("t", {"a": 1}, "x"),
    ),
    "LlamaIndex": (
        {"_node_content": NODE, "_node_type": "TextNode", "a": 1, "content": "of the user's"},
        None,
        Entry("t", {"a": 1, "content": "of the user's", "start_char_idx": 7}),
    ),
    "a document of LlamaIndex": ({"_node_content": DOCUMENT}, None, Entry("t", {})),
    "LlamaIndex with the text beside": (
        {"_node_content": EMPTY, "text": "t"},
        None,
        Entry("t", {}),
    ),
    "an empty text before another": (
        {"text": "", "page_content": "t"},
        None,
        Entry("t", {"text": ""}),
    ),
    "a key that is named": (
        {"text": "no", "a": {"b": "t", "c": 1}},
        "a.b",
        Entry("t", {"text": "no", "a": {"c": 1}}),
    ),
    "a key of both": (
        {"text": "t", "a": 1, "metadata": {"a": 2, "b": 3}},
        None,
        Entry("t", {"a": 1, "b": 3}),
    ),
    "no text": ({"passage": "t"}, None, Entry(None, {"passage": "t"})),
    "no end of lists": (
        {"_node_content": "[" * 100_000, "text": "t"},
        None,
        Entry("t", {"_node_content": "[" * 100_000}),
    ),
    "no node": ({"_node_content": "{", "text": "t"}, None, Entry("t", {"_node_content": "{"})),
}


@pytest.mark.parametrize(("payload", "text_key", "entry"), PAYLOADS.values(), ids=PAYLOADS)
def test_a_payload_is_read_as_its_tool_means_it(payload, text_key, entry):
    before = json.dumps(payload)
    assert read_entry(payload, text_key) == entry
    assert json.dumps(payload) == before


def test_entries_without_the_text_are_no_reason_to_ask_again():
    """The service said 503 and "ask again" for ever."""
    models = pytest.importorskip("qdrant_client.models")
    from qdrant_client import QdrantClient

    from sift_core.sources import QdrantSource

    embedder = HashingEmbedder(16)
    with closing(QdrantClient(":memory:")) as client:
        params = models.VectorParams(size=16, distance=models.Distance.COSINE)
        client.create_collection("c", vectors_config=params)
        for i, vector in enumerate(embedder.embed_documents(TEXTS[:2]).tolist()):
            point = models.PointStruct(id=i, vector=vector, payload={"passage": TEXTS[i]})
            client.upsert("c", [point])
        wrong = {
            "a text under another key": QdrantSource(client, "c"),
            "another vector": QdrantSource(client, "c", vector_name="dense"),
        }
        for source in wrong.values():
            with service(source=source, embedder=embedder) as http:
                answer = http.post("/search", json={"query": "paper boat"})
                assert answer.status_code == 500
                assert "retry-after" not in answer.headers
                assert "log says why" in answer.json()["detail"]
