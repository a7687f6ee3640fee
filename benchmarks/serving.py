"""How long does a rerank over HTTP take, alone and while the language model learns?

    python -m benchmarks.serving [--requests 300] [--json benchmarks/results/serving.json]

The service is a process of its own. A rerank is of 200 documents with vectors of 384 numbers, the
ten best of them: with the vectors in base64, as lists of numbers, or with texts that the service
has embedded before. The same choice in process is what the service adds to. Beside it run none or
three fine-tunings of 5,000 steps, asked for by clients of their own.
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
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.records import write_record
from sift_core import InMemorySource, select
from sift_core.answering.model.bundled import SMOLLM2
from sift_core.testing import HashingEmbedder

N_DOCUMENTS, DIMENSION, TOP = 200, 384, 10
N_LEARNING = 3
JSON = {"content-type": "application/json"}


def serve(model: str) -> None:
    """Serve a small store and a model at a free port, which is printed."""
    import uvicorn

    from sift_core.answering import AnswerEngine
    from sift_core.cli.serve import listener_at
    from sift_core.service import ServiceSettings, create_app

    embedder = HashingEmbedder(DIMENSION)
    texts = [f"passage {i} about boats, rivers and tea" for i in range(N_DOCUMENTS)]
    engine = AnswerEngine.from_pretrained(
        model,
        source=InMemorySource(embedder.embed_documents(texts), texts),
        embedder=embedder,
        n_steps=5000,
        adapter_cache=None,
    )
    listener = listener_at("127.0.0.1", 0)
    print(listener.getsockname()[1], flush=True)
    app = create_app(engine, settings=ServiceSettings(model_name="model", timeout_s=3600))
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listener])


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


def bodies() -> dict[str, bytes]:
    """Return what is sent, by how the vectors come."""
    vectors = np.random.default_rng(0).normal(0.5, 1, (N_DOCUMENTS + 1, DIMENSION)).astype("<f4")
    texts = [f"a text of its own, number {i}" for i in range(N_DOCUMENTS)]
    body: dict[str, Any] = {"query": "a question", "documents": texts, "top_n": TOP}

    def spelled(vectors: list[Any]) -> bytes:
        given = {"query_embedding": vectors[0], "embeddings": vectors[1:]}
        return json.dumps({**body, **given}).encode()

    return {
        "vectors in base64": spelled([base64.b64encode(row).decode() for row in vectors]),
        "vectors as lists": spelled(vectors.tolist()),
        "texts known before": json.dumps(body).encode(),
    }


def milliseconds(port: int, body: bytes, n: int) -> list[float]:
    """Return how long each of n requests took, one after another on one connection."""
    times = []
    with closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
        for _ in range(n + 10):
            begin = time.perf_counter()
            connection.request("POST", "/v2/rerank", body, JSON)
            answer = connection.getresponse()
            answer.read()
            times.append(1000 * (time.perf_counter() - begin))
            assert answer.status == 200
    return times[10:]


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
    vectors = np.random.default_rng(0).normal(0.5, 1, (N_DOCUMENTS + 1, DIMENSION))
    vectors = vectors.astype(np.float32)
    times = []
    for _ in range(n + 10):
        begin = time.perf_counter()
        select(vectors[0], vectors[1:], TOP)
        times.append(1000 * (time.perf_counter() - begin))
    return times[10:]


def row(case: str, n_learning: int, times: list[float]) -> dict[str, Any]:
    """Return and print what a case came to."""
    low, p50, p99 = np.percentile(times, [0, 50, 99]).round(2).tolist()
    print(f"{case:<20} beside {n_learning}  least {low:7.1f}  p50 {p50:7.1f}  p99 {p99:7.1f} ms")
    return {"case": case, "learning": n_learning, "least_ms": low, "p50_ms": p50, "p99_ms": p99}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--model", default=SMOLLM2)
    parser.add_argument("--json", type=Path, help="where to write the record")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.model)
        return
    rows = [row("in process", 0, in_process(arguments.requests))]
    with service(arguments.model) as port:
        for n in (0, N_LEARNING):
            with learning(port, n):
                for case, body in bodies().items():
                    rows.append(row(case, n, milliseconds(port, body, arguments.requests)))
    if arguments.json is not None:
        packages = ["numpy", "torch", "fastapi", "uvicorn", "sift-rerank"]
        write_record(arguments.json, rows=rows, bars=[], packages=packages)


if __name__ == "__main__":
    main()
