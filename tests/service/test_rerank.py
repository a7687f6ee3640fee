"""Rerank as each dialect's requests and answers have it, over a real connection."""

import base64
import json

import numpy as np
import pytest

from tests.service.servers import TEXTS, chosen_order

QUERY = "how to fold a boat of paper"


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
def test_documents_come_in_order_of_choice_with_falling_scores(http, embedder, path):
    body = {"model": "any", "query": QUERY, "documents": TEXTS}
    answer = http.post(path, json=body).raise_for_status().json()
    assert [one["index"] for one in answer["results"]] == chosen_order(embedder, QUERY, len(TEXTS))
    assert answer["results"][-1]["index"] in (0, 1)  # one of the two is a copy
    assert http.post(path, json={**body, "top_n": 0}).json()["results"] == answer["results"]
    assert http.post(path, json={**body, "top_n": 3}).json()["results"] == answer["results"][:3]
    scores = [one["relevance_score"] for one in answer["results"]]
    assert scores[0] == 1.0
    assert scores[-1] == 1 / 8  # eight documents
    assert (np.diff(scores) < 0).all()
    assert answer["model"] == "any"
    assert answer["usage"]["total_tokens"] > 0


def test_documents_may_have_fields(http):
    documents = [{"text": "a kettle"}, {"text": "fold a boat", "title": "boats"}]
    body = {"query": "boat", "documents": documents, "return_documents": True}
    first = http.post("/v1/rerank", json=body).json()["results"][0]
    assert first["document"] == {"text": "fold a boat"}
    body["rank_fields"] = ["title", "text"]
    first = http.post("/v1/rerank", json=body).json()["results"][0]
    assert first["document"] == {"text": "title: boats\ntext: fold a boat"}


@pytest.mark.parametrize("as_base64", [False, True])
def test_given_vectors_are_used_and_nothing_is_embedded(http, embedder, as_base64):
    def spelled(vector):
        return base64.b64encode(vector).decode() if as_base64 else vector.tolist()

    vectors = embedder.embed_documents(TEXTS)
    body = {
        "query": "!",  # this embedder refuses it
        "documents": ["?"] * len(TEXTS),
        "embeddings": [spelled(row) for row in vectors],
        "query_embedding": spelled(embedder.embed_query(QUERY)),
    }
    answer = http.post("/v2/rerank", json=body).raise_for_status().json()
    by_vectors = chosen_order(embedder, QUERY, len(TEXTS), words=0)
    assert [one["index"] for one in answer["results"]] == by_vectors
    assert answer["usage"]["total_tokens"] == 0


def test_a_text_is_embedded_once(http):
    body = {
        "query": "a question of its own",
        "documents": ["one of a kind", "one of a kind", "x y"],
    }

    def misses():
        lines = http.get("/metrics").text.splitlines()
        line = next(x for x in lines if 'cache="vectors",result="miss"' in x)
        return float(line.split()[-1])

    before = misses()
    http.post("/rerank", json=body).raise_for_status()
    assert misses() - before == 3  # the question and two distinct texts
    http.post("/rerank", json=body).raise_for_status()
    assert misses() - before == 3


def test_one_document_and_blank_ones(http):
    one = http.post("/rerank", json={"query": "x", "documents": ["y"]}).json()["results"]
    assert [(r["index"], r["relevance_score"]) for r in one] == [(0, 1.0)]
    texts = ["", "a boat", "  \n"]
    blank = http.post("/rerank", json={"query": "boat", "texts": texts}).json()
    assert [r["index"] for r in blank] == [1, 0, 2]
    none = http.post("/rerank", json={"query": "boat", "documents": ["", " "]}).json()["results"]
    assert [r["index"] for r in none] == [0, 1]


def test_unicode_comes_back_as_it_is(http):
    texts = ["日本語 お茶", "naïve café ☕", "\U0001d518 𐍈 \u202e tea", "zero\u0000byte"]
    body = {"query": "お茶 ☕ tea", "documents": texts, "return_documents": True}
    results = http.post("/v1/rerank", json=body).raise_for_status().json()["results"]
    assert {r["document"]["text"] for r in results} == set(texts)


def test_ten_thousand_documents_are_ranked_and_one_more_is_refused(http):
    texts = [f"text number {i} about boats" for i in range(10_000)]
    body = {"query": "text number 77", "documents": texts, "top_n": 5}
    results = http.post("/v2/rerank", json=body).raise_for_status().json()["results"]
    assert results[0]["index"] == 77
    body["documents"] = [*texts, "one more"]
    refused = http.post("/v2/rerank", json=body)
    assert refused.status_code == 413
    assert "10,000" in refused.json()["message"]


@pytest.mark.parametrize("n_before", [1, 1200])  # of which 1,000 are chosen from
def test_a_vector_of_zeros_comes_last(http, n_before, caplog):
    body = {
        "query": "q",
        "documents": [f"text {i}" for i in range(n_before + 2)],
        "embeddings": [[0.5, 1.0 + i] for i in range(n_before)] + [[0.0, 0.0], [1.0, 0.0]],
        "query_embedding": [1.0, 0.0],
    }
    results = http.post("/v2/rerank", json=body).raise_for_status().json()["results"]
    assert [one["index"] for one in results][-1] == n_before
    assert len(results) == n_before + 2
    assert f"documents: [{n_before}]" in caplog.text


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
def test_with_limits_the_results_are_the_choice_alone(http, path):
    body = {"query": QUERY, "documents": TEXTS, "max_tokens": 24}
    results = http.post(path, json=body).raise_for_status().json()["results"]
    assert (
        0 < sum(len(TEXTS[one["index"]]) / 4 for one in results) <= 24
    )  # its embedder counts none
    assert len(results) < len(TEXTS)
    documents = [{"text": text, "source": f"{i % 2}.md"} for i, text in enumerate(TEXTS)]
    body = {"query": QUERY, "documents": documents, "max_per_document": 2, "top_n": 3}
    results = http.post(path, json=body).json()["results"]
    assert len(results) == 3
    body["top_n"] = 8
    results = http.post(path, json=body).json()["results"]
    assert sorted(one["index"] % 2 for one in results) == [0, 0, 1, 1]


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
def test_of_near_duplicates_the_newest_comes_first(http, path):
    documents = [
        {"text": text, "day": day}
        for text in (QUERY, TEXTS[0])
        for day in ("2024-01-05", "2024-03-01", "2023-12-31")
    ]
    body = {"query": QUERY, "documents": documents}
    first = http.post(path, json=body).json()["results"]
    newest = http.post(path, json={**body, "newest": "day"}).json()["results"]
    assert first[0]["index"] == 0
    assert [one["index"] for one in newest][:2] == [1, 4]
    answer = http.post(path, json={**body, "half_life_days": 3})
    assert answer.status_code in {400, 422}
    assert "needs `newest`" in answer.text


REFUSED = {  # and how the message of /rerank begins
    "no documents": ({"query": "q", "documents": []}, ""),
    "no texts": ({"query": "q", "texts": []}, ""),
    "blank query": ({"query": " ", "documents": ["a"]}, ""),
    "nothing": ({}, ""),
    "not even documents": ({"query": "q"}, "`documents`: "),
    "documents of numbers": ({"query": "q", "documents": [1, 2]}, "`documents.0`: "),
    "texts of numbers": ({"query": "q", "texts": ["a", 1]}, "`texts.1`: "),
    "a document without a text": ({"query": "q", "documents": [{"title": "t"}]}, ""),
    "a negative top_n": ({"query": "q", "documents": ["a"], "top_n": -1}, "`top_n`: "),
    "too few embeddings": ({"query": "q", "documents": ["a", "b"], "embeddings": [[1.0]]}, ""),
    "another dimension": ({"query": "q", "documents": ["a"], "embeddings": [[1.0, 2.0]]}, ""),
    "ragged": ({"query": "q", "documents": ["a", "b"], "embeddings": [[1.0], [1.0, 2]]}, ""),
    "of words": ({"query": "q", "documents": ["a"], "embeddings": [["x"]]}, "`embeddings`: "),
    "no base64": ({"query": "q", "documents": ["a"], "embeddings": ["%%%"]}, ""),
    "an empty vector": ({"query": "q", "documents": ["a"], "embeddings": [[]]}, ""),
    "not finite": ({"query": "q", "documents": ["a"], "embeddings": [[1.0, np.inf]]}, ""),
}


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
@pytest.mark.parametrize(("body", "beginning"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_ranked_is_refused_in_the_dialect(http, path, body, beginning):
    kind = {"content-type": "application/json"}
    answer = http.post(path, content=json.dumps(body), headers=kind)
    assert answer.status_code == (422 if path == "/rerank" else 400)
    told = answer.json()
    assert told["message"] == told["detail"]  # Cohere's, Jina's
    assert len(told["message"]) > 10
    if path == "/rerank":  # where each dialect's names are known
        assert told["message"].startswith(beginning)
    assert "Value error" not in told["message"]
    assert ("error_type" in told) == (path == "/rerank")  # TEI's
    assert "Traceback" not in answer.text
