"""What does HTTP add to the engine, and how long does a rerank take while the model learns?

    python -m benchmarks.serving [--requests 300] [--questions 20] [--json FILE]

The service is a process of its own, with MiniLM and the bundled language model. A rerank is of 200
documents, the ten best of them, with vectors of 384 numbers each in base64. Beside it run none or
three fine-tunings of 5,000 steps, asked for by clients of their own. The same choice in process,
and the same questions put to the same engine in process, are what the service adds to. The tag
`evidence-2026-11b` also has vectors as lists, texts that the service embeds, and eight clients.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import numpy as np

from benchmarks.options import options
from benchmarks.report import Report
from benchmarks.serving_chat import ask_both_ways, small_engine
from sift_core import select
from sift_core.answering.model.bundled import SMOLLM2

N_DOCUMENTS, DIMENSION, TOP = 200, 384, 10
N_LEARNING = 3
N_UNMEASURED = 10
JSON = {"content-type": "application/json"}


def serve(model: str) -> None:
    """Serve a small store and a model at a free port, which is printed."""
    import uvicorn

    from sift_core.service import ServiceSettings, create_app
    from sift_core.service.guard import PromptHeaders
    from sift_core.service.server import listener_at

    listener = listener_at("127.0.0.1", 0)
    print(listener.getsockname()[1], flush=True)
    settings = ServiceSettings(model_name="model", timeout_s=3600)
    app = create_app(small_engine(model, n_steps=5000), settings=settings)
    config = uvicorn.Config(app, log_level="error", http=PromptHeaders)
    uvicorn.Server(config).run(sockets=[listener])


@contextmanager
def service(model: str) -> Iterator[int]:
    """Run the service; yield its port."""
    command = [sys.executable, "-m", "benchmarks.serving", "--serve", "--model", model]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


def given_vectors() -> np.ndarray:
    """Return the question's vector and the documents', shape (1 + n, d)."""
    return np.random.default_rng(0).normal(0.5, 1, (N_DOCUMENTS + 1, DIMENSION)).astype("<f4")


def rerank_body() -> bytes:
    """Return a request with texts, and vectors in base64."""
    vectors = [base64.b64encode(row).decode() for row in given_vectors()]
    texts = [f"a text of its own, number {i}" for i in range(N_DOCUMENTS)]
    given = {"query_embedding": vectors[0], "embeddings": vectors[1:]}
    asked = {"query": "a question", "documents": texts, "top_n": TOP}
    return json.dumps({**asked, **given}).encode()


def milliseconds(port: int, n: int) -> list[float]:
    """Return how long each rerank took, one after another on one connection."""
    times, content = [], rerank_body()
    with closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
        for _ in range(N_UNMEASURED + n):
            begin = time.perf_counter()
            connection.request("POST", "/v2/rerank", content, JSON)
            answer = connection.getresponse()
            answer.read()
            times.append(1000 * (time.perf_counter() - begin))
            assert answer.status == 200
    return times[N_UNMEASURED:]


@contextmanager
def learning(port: int, n: int) -> Iterator[None]:
    """Have n clients wait for fine-tunings that do not end, and go away at last."""
    with ExitStack() as stack:
        for i in range(n):
            connection = http.client.HTTPConnection("127.0.0.1", port)
            stack.enter_context(closing(connection))
            message = {"role": "user", "content": f"What is passage {i} about?"}
            body = json.dumps({"model": "model:fine_tune", "messages": [message]})
            connection.request("POST", "/v1/chat/completions", body, JSON)
        while n and steps(port) < 2 * n:
            time.sleep(0.2)
        yield


def steps(port: int) -> float:
    """Return how many training steps the service has taken."""
    with closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
    found = next(line for line in lines if line.startswith("sift_learning_steps_total"))
    return float(found.split()[1])


def in_process(n: int) -> list[float]:
    """Return how long the choice alone takes."""
    vectors = given_vectors()
    times = []
    for _ in range(N_UNMEASURED + n):
        begin = time.perf_counter()
        select(vectors[0], vectors[1:], TOP)
        times.append(1000 * (time.perf_counter() - begin))
    return times[N_UNMEASURED:]


def spread(report: Report, case: str, times_ms: list[float], **also: Any) -> dict[str, Any]:
    """Add, print and return a row with the least, p50 and p99 of some times."""
    low, p50, p99 = np.percentile(times_ms, [0, 50, 99]).round(2).tolist()
    report.add(case=case, **also, n=len(times_ms), least_ms=low, p50_ms=p50, p99_ms=p99)
    return report.rows[-1]


def reranks(report: Report, port: int, n: int) -> None:
    """Measure reranks one after another, with and without learning beside them."""
    report.heading(f"A rerank of {N_DOCUMENTS}: least, p50, p99")
    choice = spread(report, "in process", in_process(n))
    for n_learning in (0, N_LEARNING):
        with learning(port, n_learning):
            row = spread(report, "vectors in base64", milliseconds(port, n), learning=n_learning)
            row["p50_over_in_process"] = round(row["p50_ms"] / choice["p50_ms"], 2)
    name = f"vectors in base64 beside {N_LEARNING} fine-tunings, p99 in ms"
    report.judge(name, report.rows[-1]["p99_ms"], "rerank_p99_ms", "lower")


def chats(report: Report, port: int, model: str, n: int) -> None:
    """Measure answers by context, whole and to the first token, in process and over HTTP."""
    report.heading("An answer by context of 16 tokens: least, p50, p99")
    found = ask_both_ways(small_engine(model, n_steps=1), port, n)
    for case, times in found.items():
        spread(report, case, times)
    for case in ("whole answer", "first token"):
        here, there = (np.array(found[f"{case}, {place}"]) for place in ("in process", "HTTP"))
        over = round(float(np.median(there / here)), 3)
        report.add(case=f"{case}, HTTP over in process", median_ratio=over)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--questions", type=int, default=20)
    parser.add_argument("--model", default=SMOLLM2)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.model)
        return
    report = Report(section="serving")
    with service(arguments.model) as port:
        chats(report, port, arguments.model, arguments.questions)
        reranks(report, port, arguments.requests)
    packages = ["numpy", "torch", "transformers", "fastapi", "uvicorn", "h11", "sift-rerank"]
    report.finish(arguments.json, packages)


if __name__ == "__main__":
    main()
