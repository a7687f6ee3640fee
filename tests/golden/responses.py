"""Twenty responses of a small service, for `responses.json`.

On the CPU in float32, one thread, over a real connection. What differs from call to call stands as
"…"; numbers have six digits. All that is imported from the library is imported by
`tests.service.servers`.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from tests.golden.engine_answers import one_thread
from tests.random_model import save_random_model
from tests.service.servers import PATIENCE_S, TEXTS, serving, tiny_app

QUERY = "how to fold a boat of paper"
CHANGES = ("id", "created", "timings", "seconds", "first_token_s", "tokens_per_s")
SOME = TEXTS[:4]


def _rerank(**body):
    return {"query": QUERY, **body}


def _chat(mode="context", question=QUERY, **body):
    messages = [{"role": "user", "content": question}]
    return {"model": f"tiny:{mode}", "messages": messages, "max_tokens": 8, **body}


CASES = {
    "rerank": ("/v1/rerank", _rerank(documents=TEXTS)),
    "rerank, top_n": ("/v2/rerank", _rerank(documents=TEXTS, top_n=2, return_documents=True)),
    "rerank, objects": (
        "/v1/rerank",
        _rerank(documents=[{"text": one} for one in SOME], top_n=2),
    ),
    "rerank, a blank document": ("/v1/rerank", _rerank(documents=[*SOME, " "])),
    "rerank, vectors": (
        "/v1/rerank",
        _rerank(
            documents=["a", "b", "c"],
            embeddings=[[1, 0], [1, 0.1], [0, 1]],
            query_embedding=[1, 1],
        ),
    ),
    "rerank, tei": ("/rerank", _rerank(texts=SOME, return_text=True)),
    "rerank, nothing": ("/v1/rerank", _rerank(documents=[])),
    "rerank, no query": ("/v1/rerank", {"query": " ", "documents": SOME}),
    "search": ("/search", _rerank(n_select=2, n_candidates=4)),
    "search, compared": ("/search", _rerank(n_select=2, n_candidates=3, compare=True)),
    "search, tokens": ("/search", _rerank(n_select=3, n_candidates=4, max_tokens=20)),
    "search, one a document": ("/search", _rerank(n_select=3, n_candidates=4, max_per_document=1)),
    "search, filter": ("/search", _rerank(n_select=2, n_candidates=4, filter={"topic": "tea"})),
    "search, wrong": ("/search", _rerank(n_select=0)),
    "embeddings": ("/v1/embeddings", {"model": "hashing-64", "input": "a"}),
    "chat, base": ("/v1/chat/completions", _chat("base")),
    "chat, context": ("/v1/chat/completions", _chat()),
    "chat, both": ("/v1/chat/completions", _chat("both")),
    "chat, limits": (
        "/v1/chat/completions",
        _chat(sift={"max_context_tokens": 20, "max_per_document": 1}),
    ),
    "chat, no such mode": ("/v1/chat/completions", _chat("guess")),
}


def record():
    """Return all lines of `responses.json`."""
    with TemporaryDirectory() as folder, one_thread():
        app = tiny_app(save_random_model(Path(folder)))
        with serving(app) as url, httpx.Client(base_url=url, timeout=PATIENCE_S) as client:
            return {name: _response(client, *case) for name, case in CASES.items()}


def _response(client, path, body):
    answer = client.post(path, json=body)
    return [answer.status_code, stable(answer.json())]


def stable(value, *, digits=6):
    """Return a JSON value without what differs from call to call, its numbers rounded."""
    if isinstance(value, dict):
        return {
            key: "…" if key in CHANGES else stable(one, digits=digits) for key, one in value.items()
        }
    if isinstance(value, list):
        return [stable(one, digits=digits) for one in value]
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value
