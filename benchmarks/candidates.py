"""What does a source cost over the bare call of the store behind it?

    python -m benchmarks.candidates [--quick] [--json FILE]

One thread. Every time is a median of one run in which the bare call and ours alternate, on the
same queries. The bare call is what brings the vectors: Faiss' `search_and_reconstruct`,
and qdrant-client's `query_points`, by REST and by gRPC, against a server on this machine that
answers from memory, so that hardly anything but the client's own work is on the other side of the
ratio.
bars.toml has what must be reached.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before NumPy and Faiss load their libraries
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"
os.environ["NUMBA_NUM_THREADS"] = "1"

from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass

import faiss
import numpy as np
from qdrant_client import QdrantClient

from benchmarks.options import options
from benchmarks.qdrant_servers import answering, answering_grpc
from benchmarks.report import Report
from benchmarks.selection_data import collection, queries
from benchmarks.timing import medians_ms, timed
from sift_core import (
    CandidatePool,
    ContextSelector,
    Document,
    InMemorySource,
    Query,
    load_compiled,
)
from sift_core.sources import FaissSource, QdrantSource

PACKAGES = ["numpy", "numba", "faiss-cpu", "qdrant-client", "grpcio", "sift-rerank"]
OURS, BARE = "fetch", "bare call"
DIMENSIONS = (384, 1024)
N_CANDIDATES = (200, 1000)
N_CHOSEN = 10
TEXT = "About eight hundred characters of text, as a chunk of documentation has. " * 11


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much to measure; the bars are for the sizes of the full run."""

    n_faiss: int = 100_000
    n_queries: int = 20
    rounds: int = 5


QUICK = Effort(n_faiss=20_000, n_queries=6, rounds=3)


def measure(report: Report, effort: Effort) -> None:
    """Run every case and judge the bars: the worst of the four shapes counts."""
    faiss.omp_set_num_threads(1)
    ratios: dict[str, list[float]] = {}
    for d in DIMENSIONS:
        generator = np.random.default_rng(d)
        vectors = collection("text", effort.n_faiss, d, generator)
        asked = [
            Query(text="?", embedding=row) for row in queries(vectors, effort.n_queries, generator)
        ]
        case = Case(report=report, effort=effort, vectors=vectors, asked=asked, ratios=ratios)
        case.faiss()
        case.qdrant("REST", "rest_over_bare", answering, connect)
        case.qdrant("gRPC", "grpc_over_bare", answering_grpc, connect_grpc)
    report.heading("The worst of every shape")
    for key, name in (
        ("faiss_over_bare", f"Faiss of {effort.n_faiss:,}: fetch over search_and_reconstruct"),
        ("rest_over_bare", "REST: fetch over query_points"),
        ("grpc_over_bare", "gRPC: fetch over query_points"),
    ):
        report.judge(name, max(ratios[key]), key, better="lower")


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """One dimension: vectors (n, d), queries, and where the ratios go."""

    report: Report
    effort: Effort
    vectors: np.ndarray
    asked: list[Query]
    ratios: dict[str, list[float]]

    def faiss(self) -> None:
        n, d = self.vectors.shape
        index = faiss.IndexFlatIP(d)
        index.add(self.vectors)
        listed = FaissSource(index, documents(n))
        selector = ContextSelector()
        for k in N_CANDIDATES:

            def bare(query: Query, k: int = k) -> object:
                return index.search_and_reconstruct(query.embedding[np.newaxis], k)

            def choose(query: Query, k: int = k) -> object:
                pool = listed.fetch(query, k)
                return selector.select(query.embedding, pool.embeddings, N_CHOSEN)

            self._compare(
                f"Faiss flat, {n:,} of {d}, K {k}",
                "faiss_over_bare",
                {
                    BARE: bare,
                    OURS: lambda query, k=k: listed.fetch(query, k),
                    f"fetch and choose {N_CHOSEN}": choose,
                },
            )

    def qdrant(
        self,
        protocol: str,
        key: str,
        answering: Callable[[CandidatePool], AbstractContextManager[str]],
        connect: Callable[[str], QdrantClient],
    ) -> None:
        d = self.vectors.shape[1]
        for k in N_CANDIDATES:
            memory = InMemorySource(self.vectors[:k], [TEXT] * k)
            with answering(memory.fetch(self.asked[0], k)) as url, closing(connect(url)) as client:
                source = QdrantSource(client, "docs")

                def bare(query: Query, k: int = k, client: QdrantClient = client) -> object:
                    return client.query_points(
                        "docs", query.embedding.tolist(), limit=k, with_vectors=True
                    )

                self._compare(
                    f"{protocol}, K {k} of {d}",
                    key,
                    {BARE: bare, OURS: lambda query, k=k, s=source: s.fetch(query, k)},
                )

    def _compare(self, case: str, key: str, calls: dict[str, Callable[[Query], object]]) -> None:
        timers = {name: timed(call) for name, call in calls.items()}
        times = medians_ms(BARE, timers, self.asked, rounds=self.effort.rounds)
        self.report.heading(case)
        self.report.times(case, "text", BARE, times)
        self.ratios.setdefault(key, []).append(times[OURS] / times[BARE])


def connect(url: str) -> QdrantClient:
    return QdrantClient(url=url, timeout=30, check_compatibility=False)


def connect_grpc(url: str) -> QdrantClient:
    port = int(url.rpartition(":")[2])
    return QdrantClient(
        url=url, grpc_port=port, prefer_grpc=True, timeout=30, check_compatibility=False
    )


def documents(n: int) -> list[Document]:
    return [
        Document(document_id=f"doc-{i}", text=TEXT, metadata={"source": f"{i % 97}.md", "page": i})
        for i in range(n)
    ]


def main() -> None:
    arguments = options(__doc__, quick="smaller stores, fewer rounds").parse_args()
    load_compiled()  # what a process that selects a lot runs
    report = Report(section="candidates")
    measure(report, QUICK if arguments.quick else Effort())
    report.finish(arguments.json, PACKAGES)


if __name__ == "__main__":
    main()
