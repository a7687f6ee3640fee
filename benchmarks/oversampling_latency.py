"""What a fetch with oversampling takes over a real index, beside single fetches."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.retrieval import QuestionSet
from benchmarks.timing import medians_ms, timed
from sift_core import CandidatePool, CandidateSource, ContextSelector, Query
from sift_core.evaluation.embedding_cache import EmbeddingCache
from sift_core.evaluation.search import as_is, noisy_copies
from sift_core.sources.oversampling import OversamplingSource

N_QUESTIONS = 10
N_COPIES = 16
N_SELECT = 10
SIZES = (200, 1000)


def measure_latency(
    questions: QuestionSet, cache: EmbeddingCache, seed: int
) -> list[dict[str, Any]]:
    """Return ms of fetch and selection together, as it is and with copies; exact Faiss search."""
    rows = []
    queries = [
        Query(text=one.text, embedding=embedding)
        for one, embedding in zip(questions.questions, questions.embeddings, strict=True)
    ][:N_QUESTIONS]
    plain = as_is(questions.passages, cache)
    for versions in (plain, noisy_copies(plain, N_COPIES, seed)):
        source = FlatSource(versions.embeddings)
        timers: dict[str, Callable[[Query], float]] = {
            f"{size}": timed(partial(_answer, source, size)) for size in SIZES
        }
        adaptive = OversamplingSource(source, n_select=N_SELECT)
        timers["adaptive"] = timed(partial(_answer, adaptive, SIZES[0]))
        for policy, ms in medians_ms(f"{SIZES[0]}", timers, queries, rounds=2).items():
            rows.append(
                {
                    "part": "latency",
                    "set": questions.name,
                    "condition": versions.condition,
                    "n_documents": len(versions.embeddings),
                    "policy": policy,
                    "n_select": N_SELECT,
                    "ms": ms,
                }
            )
            print(f"fetch and select, {versions.condition:<14} {ms:7.1f} ms  {policy}")
    return rows


def _answer(source: CandidateSource, n_candidates: int, query: Query) -> None:
    pool = source.fetch(query, n_candidates)
    ContextSelector().select(query.embedding, pool.embeddings, N_SELECT)


class FlatSource:
    """Exact search by Faiss that brings the vectors with the hits, without texts."""

    def __init__(self, embeddings: np.ndarray) -> None:
        import faiss

        self._index = faiss.IndexFlatIP(embeddings.shape[1])
        self._index.add(embeddings)

    def fetch(self, query: Query, n_candidates: int, *, filter: Any = None) -> CandidatePool:
        n = min(n_candidates, self._index.ntotal)
        similarities, rows, vectors = self._index.search_and_reconstruct(query.embedding[None], n)
        names = [str(row) for row in rows[0]]
        return CandidatePool(
            document_ids=names,
            texts=names,
            embeddings=vectors[0],
            similarities=np.clip(similarities[0], -1, 1),
        )

    async def afetch(self, query: Query, n_candidates: int, *, filter: Any = None) -> CandidatePool:
        return self.fetch(query, n_candidates, filter=filter)
