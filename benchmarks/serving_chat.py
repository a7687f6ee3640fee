"""The same questions put to an engine in process and to a service of the same engine."""

from __future__ import annotations

import http.client
import json
import time
from contextlib import closing
from typing import Any

from sift_core import InMemorySource
from sift_core.answering import AnswerEngine, LearningOptions
from sift_core.embedders import SentenceTransformerEmbedder
from sift_core.embedders.packaged import MINILM

N_TOKENS = 16
TOPICS = "boats rivers tea paper wind leaves kettles maps bridges lamps".split()


def small_engine(model: str, *, n_steps: int) -> AnswerEngine:
    """Return an engine over 200 short passages, which keeps nothing that it learns."""
    embedder = SentenceTransformerEmbedder(MINILM)
    texts = [
        f"passage {i} about {TOPICS[i % 10]} and {TOPICS[i // 10 % 10]}, for reading by the fire"
        for i in range(200)
    ]
    return AnswerEngine.from_pretrained(
        model,
        source=InMemorySource(embedder.embed_documents(texts), texts),
        embedder=embedder,
        learning=LearningOptions(n_steps=n_steps, cache=None),
    )


def ask_both_ways(engine: AnswerEngine, port: int, n: int) -> dict[str, list[float]]:
    """Return milliseconds by what was measured and where, one each of n questions.

    The four calls of a question follow one another, so that what else the machine does meets all
    alike, and every second question is first asked over HTTP. The texts must be the same. A first
    question is not counted.
    """
    calls = {
        "whole answer, in process": lambda question: _whole(engine, question),
        "whole answer, HTTP": lambda question: _whole_over_http(port, question),
        "first token, in process": lambda question: _first(engine, question),
        "first token, HTTP": lambda question: _first_over_http(port, question),
    }
    found: dict[str, list[float]] = {case: [] for case in calls}
    for number in range(n + 1):
        question = f"What does passage {number} say of {TOPICS[number % 10]}?"
        cases = list(calls) if number % 2 else list(reversed(calls))
        told = {case: calls[case](question) for case in cases}
        assert len({text for _, text in told.values()}) == 1, told
        if number:
            for case, (milliseconds, _) in told.items():
                found[case].append(milliseconds)
    return found


def _whole(engine: AnswerEngine, question: str) -> tuple[float, str]:
    begin = time.perf_counter()
    answer = engine.answer(question, mode="context", max_new_tokens=N_TOKENS)
    return _since(begin), answer.text


def _first(engine: AnswerEngine, question: str) -> tuple[float, str]:
    begin, first_ms, text = time.perf_counter(), 0.0, ""
    for piece in engine.stream(question, mode="context", max_new_tokens=N_TOKENS):
        first_ms = first_ms or _since(begin)
        text += piece
    return first_ms, text


def _whole_over_http(port: int, question: str) -> tuple[float, str]:
    begin = time.perf_counter()
    with closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
        told = json.load(_asked(connection, question, stream=False))
    return _since(begin), told["choices"][0]["message"]["content"]


def _first_over_http(port: int, question: str) -> tuple[float, str]:
    begin, first_ms, text = time.perf_counter(), 0.0, ""
    with closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
        for line in _asked(connection, question, stream=True):
            if line.startswith(b"data: {"):
                for choice in json.loads(line[6:])["choices"]:
                    if piece := choice["delta"].get("content"):
                        first_ms = first_ms or _since(begin)
                        text += piece
    return first_ms, text


def _asked(connection: http.client.HTTPConnection, question: str, *, stream: bool) -> Any:
    body = {
        "model": "model:context",
        "messages": [{"role": "user", "content": question}],
        "max_tokens": N_TOKENS,
        "stream": stream,
    }
    headers = {"content-type": "application/json"}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
    answer = connection.getresponse()
    assert answer.status == 200
    return answer


def _since(begin: float) -> float:
    return 1000 * (time.perf_counter() - begin)
