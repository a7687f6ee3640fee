"""What the oversampling benchmark asks: one ranking a question, served as a source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.retrieval import QuestionSet
from benchmarks.text_variants import textual_variants
from sift_core import CandidatePool, Query
from sift_core.evaluation.embedding_cache import EmbeddingCache
from sift_core.evaluation.search import NOISE_LENGTH, Versions, as_is, noisy_copies, pools

N_COPIES = (4, 8, 16, 32, 64)
MOST_COPIES = 128  # of one passage, where their number is uneven
N_VARIANTS = 4  # textual versions, those that benchmarks.retrieval has embedded
DEEPEST = 2000  # candidates that any policy may ask for


@dataclass(kw_only=True, eq=False)
class RankedSource:
    """One question's exact ranking as a source, which keeps a record of what it is asked for.

    `embeddings` (n, d) and `similarities` (n,) are the nearest first; `originals` (n,) are the
    rows of the corpus that they are versions of, and become the document ids.
    """

    embeddings: np.ndarray
    similarities: np.ndarray
    originals: np.ndarray
    asked: list[int] = field(default_factory=list)

    def fetch(self, query: Query, n_candidates: int, *, filter: Any = None) -> CandidatePool:
        self.asked.append(n_candidates)
        originals = [str(row) for row in self.originals[:n_candidates]]
        return CandidatePool(
            document_ids=originals,
            texts=originals,
            embeddings=self.embeddings[:n_candidates],
            similarities=self.similarities[:n_candidates],
        )

    async def afetch(self, query: Query, n_candidates: int, *, filter: Any = None) -> CandidatePool:
        return self.fetch(query, n_candidates, filter=filter)


@dataclass(frozen=True, kw_only=True, eq=False)
class Asked:
    """A question, the passages that answer it, and what a search finds."""

    query: Query
    gold: frozenset[int]
    source: RankedSource


def conditions(
    questions: QuestionSet, cache: EmbeddingCache, *, n_copies: Sequence[int], seed: int
) -> Iterator[Versions]:
    """Yield the corpus as it is, with copies, with unevenly many, and with textual versions."""
    plain = as_is(questions.passages, cache)
    yield plain
    yield from (noisy_copies(plain, n, seed) for n in n_copies)
    yield uneven_copies(plain, seed)
    yield textual_variants(questions.passages, N_VARIANTS, 0, cache)  # as it was embedded


def uneven_copies(plain: Versions, seed: int) -> Versions:
    """Return every embedding as often as chance has it: at least n times with probability 1/n.

    Half of the passages stand alone, one in `MOST_COPIES` has that many copies, as pages that
    are mirrored everywhere do.
    """
    generator = np.random.default_rng([seed, 1])
    chance = 1.0 - generator.random(len(plain.embeddings))  # in (0, 1]
    counts = np.minimum(MOST_COPIES, 1.0 / chance).astype(np.intp)
    rows = np.repeat(np.arange(len(counts)), counts)
    noise = generator.standard_normal((len(rows), plain.embeddings.shape[1]), dtype=np.float32)
    noise *= NOISE_LENGTH / np.linalg.norm(noise, axis=1, keepdims=True)
    noise += plain.embeddings[rows]
    noise /= np.linalg.norm(noise, axis=1, keepdims=True)
    return Versions(condition="uneven", embeddings=noise, originals=plain.originals[rows])


def asked(questions: QuestionSet, versions: Versions) -> Iterator[Asked]:
    """Yield every question with its `DEEPEST` nearest, found by exact search."""
    ranked = pools(questions.embeddings, versions.embeddings, DEEPEST)
    for question, pool in zip(questions.questions, ranked, strict=True):
        yield Asked(
            query=Query(text=question.text, embedding=pool.query),
            gold=question.gold,
            source=RankedSource(
                embeddings=pool.embeddings,
                similarities=np.clip(pool.similarities, -1, 1),
                originals=versions.originals[pool.rows],
            ),
        )
