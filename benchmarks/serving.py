"""What does HTTP add to the engine, and how long does a rerank take while the model learns?

    python -m benchmarks.serving [--requests 300] [--questions 20] [--json FILE]

The service is a process of its own, with MiniLM and the bundled language model. A rerank is of 200
documents, the ten best of them: with vectors of 384 numbers each in base64 or as lists, with texts
that the service has embedded before, or with new ones. Beside it run none or three fine-tunings
of 5,000 steps, asked for by clients of their own; or eight clients ask at once. The same choice in
process, and the same questions put to the same engine in process, are what the service adds to.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import numpy as np

from benchmarks.options import options
from benchmarks.report import Report
from benchmarks.serving_chat import ask_both_ways, small_engine
from sift_core import select
from sift_core.answering.model.bundled import SMOLLM2

N_DOCUMENTS, DIMENSION, TOP = 200, 384, 10
N_LEARNING, N_CLIENTS = 3, 8
N_UNMEASURED = 10
NEW_TEXTS_TAKE = 20  # times as long as known ones, roughly: so many fewer requests
JSON = {"content-type": "application/json"}
BASE64, LISTS = "vectors in base64", "vectors as lists"
KNOWN, NEW = "texts known before", "new texts"


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


def bodies() -> dict[str, Callable[[int], bytes]]:
    """Return what request i sends, by how the vectors come."""
    vectors = given_vectors()

    def texts(number: int) -> dict[str, Any]:
        texts = [f"a text of its own, number {i} of {number}" for i in range(N_DOCUMENTS)]
        return {"query": "a question", "documents": texts, "top_n": TOP}

    def spelled(vectors: list[Any]) -> bytes:
        given = {"query_embedding": vectors[0], "embeddings": vectors[1:]}
        return json.dumps({**texts(0), **given}).encode()

    in_base64 = spelled([base64.b64encode(row).decode() for row in vectors])
    as_lists, known = spelled(vectors.tolist()), json.dumps(texts(0)).encode()
    return {
        BASE64: lambda _: in_base64,
        LISTS: lambda _: as_lists,
        KNOWN: lambda _: known,
        NEW: lambda number: json.dumps(texts(1 + number)).encode(),
    }


def milliseconds(port: int, body: Callable[[int], bytes], numbers: range) -> list[float]:
    """Return how long each request took, one after another on one connection."""
    times = []
    with closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
        for number in numbers:
            content = body(number)
            begin = time.perf_counter()
            connection.request("POST", "/v2/rerank", content, JSON)
            answer = connection.getresponse()
            answer.read()
            times.append(1000 * (time.perf_counter() - begin))
            assert answer.status == 200
    return times


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


def one_client(report: Report, port: int, n: int) -> None:
    """Measure reranks one after another, with and without learning beside them."""
    report.heading(f"A rerank of {N_DOCUMENTS}, one client: least, p50, p99")
    choice = spread(report, "in process", in_process(n))
    for n_learning in (0, N_LEARNING):
        with learning(port, n_learning):
            for case, body in bodies().items():
                if case == NEW:
                    continue
                times = milliseconds(port, body, range(N_UNMEASURED + n))[N_UNMEASURED:]
                row = spread(report, case, times, learning=n_learning)
                row["p50_over_in_process"] = round(row["p50_ms"] / choice["p50_ms"], 2)
    report.judge(
        f"{BASE64} beside {N_LEARNING} fine-tunings, p99 in ms",
        next(row["p99_ms"] for row in report.rows if row.get("learning") and row["case"] == BASE64),
        "rerank_p99_ms",
        "lower",
    )


def many_clients(report: Report, port: int, n: int) -> None:
    """Measure how many reranks a second eight clients have together."""
    report.heading(f"A rerank of {N_DOCUMENTS}, {N_CLIENTS} clients at once: least, p50, p99")
    for case, body in bodies().items():
        n_each = max(1, n // N_CLIENTS // (NEW_TEXTS_TAKE if case == NEW else 1))
        parts = [range(i * n_each, (i + 1) * n_each) for i in range(N_CLIENTS)]
        begin = time.perf_counter()
        with ThreadPoolExecutor(N_CLIENTS) as pool:
            found = list(pool.map(lambda part, body=body: milliseconds(port, body, part), parts))
        rate = N_CLIENTS * n_each / (time.perf_counter() - begin)
        times = [ms for one in found for ms in one]
        spread(report, case, times, clients=N_CLIENTS, requests_a_second=round(rate, 1))


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
        one_client(report, port, arguments.requests)
        many_clients(report, port, arguments.requests)
    packages = ["numpy", "torch", "transformers", "fastapi", "uvicorn", "h11", "sift-rerank"]
    report.finish(arguments.json, packages)


if __name__ == "__main__":
    main()
