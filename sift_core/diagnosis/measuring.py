"""Everything that is measured of a collection, in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from sift_core.diagnosis.pools import N_SELECT, PoolMeasures, fetch_all, measure_pool
from sift_core.diagnosis.questions import Question, QuestionSet, document_of, stand_ins
from sift_core.errors import CandidateSourceError, InvalidInputError
from sift_core.evaluation.statistics import Estimate, mean
from sift_core.protocols import CandidateSource, Embedder, SamplableSource
from sift_core.selection.near_duplicates import FEWEST_TO_READ
from sift_core.types import CandidatePool, DocumentSample, FloatArray, Query

N_QUESTIONS = 50
N_CHUNKS = 400  # sampled for near-duplicates: a share is then known to ± 4 points (90 %)
N_CANDIDATES = 200
_EXTRA = 50  # candidates fetched for stand-ins, whose own documents are left out. Guess.

# Cosine from which two chunks count as copies but for details; examples/demo.py has the same for
# what would give a held-back passage away. Guess.
NEAR_DUPLICATE_COSINE = 0.95

# Looked at around each chunk, so that an exact copy of the text is seen among other close chunks.
_N_NEAREST = 10

OnProgress: TypeAlias = Callable[[str, int, int], object]
"""Called with what is being done, how much of it is done, and of how much."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Duplicates:
    """What a sample says about copies in the whole collection.

    Intervals are over sampled chunks; of a collection that was sampled whole they are wider than
    they need be.

    Args:
        near: Share of chunks whose nearest other chunk has a cosine of at least
            `NEAR_DUPLICATE_COSINE` and another text.
        exact: Share of chunks whose text another chunk has too, but for whitespace.
        cosines: Of each sampled chunk to its nearest other one, shape (n,).
    """

    near: Estimate
    exact: Estimate
    cosines: FloatArray


@dataclass(frozen=True, kw_only=True, eq=False)
class Diagnosis:
    """What was measured.

    Args:
        n_stored: Chunks in the store.
        n_sampled: Chunks that were drawn from it.
        is_seeded: Whether the same seed draws the same chunks.
        duplicates: Copies in the whole collection; None where there is one chunk.
        questions: What was asked; None where all that is stored would be chosen anyway.
        pools: One for each question.
        seed: Of the draws and of the intervals.
    """

    n_stored: int
    n_sampled: int
    is_seeded: bool
    duplicates: Duplicates | None
    questions: QuestionSet | None
    pools: tuple[PoolMeasures, ...]
    seed: int

    @property
    def are_stand_ins(self) -> bool:
        """Whether sentences of the collection stood in for questions."""
        return self.questions is not None and self.questions.origin is None

    def over_questions(self, measure: Callable[[PoolMeasures], float]) -> Estimate:
        """Return the mean of a measure over the questions, with its bootstrap interval.

        Raises:
            InvalidInputError: If no question was measured.
        """
        return mean([measure(pool) for pool in self.pools], seed=self.seed)


def diagnose(
    source: CandidateSource,
    embedder: Embedder,
    *,
    sample: DocumentSample | None = None,
    questions: QuestionSet | None = None,
    n_questions: int = N_QUESTIONS,
    seed: int = 0,
    on_progress: OnProgress | None = None,
) -> Diagnosis:
    """Return how redundant a collection is, and what SIFT would change.

    Memory holds the sample and a few pools of candidates, whatever the size of the collection.
    Some 10 s for 100,000 chunks of 384 dimensions in an exact Faiss index and 50 questions.

    Args:
        source: The store. Without `sample` it must be able to draw one (`SamplableSource`).
        embedder: The model behind its vectors.
        sample: Chunks that were drawn from it before, at least one; None to draw 400 of them.
        questions: The user's own (`read_questions`); None for openings of sampled chunks.
        n_questions: How many stand-ins at most, >= 1.
        seed: Of all draws and of the intervals.
        on_progress: Called after each part of the work.

    Raises:
        CandidateSourceError: If the store fails, or a sampled vector is not finite or all zero.
        InvalidInputError: If the store is empty or cannot draw a sample, query and store do not
            fit together, or no chunk can stand in for a question.

    Example:
        >>> from sift_core import InMemorySource
        >>> from sift_core.diagnosis import diagnose, recommend
        >>> from sift_core.testing import HashingEmbedder
        >>> passages = [" ".join(f"word{i * j % 997}" for j in range(1, 9)) for i in range(1, 61)]
        >>> texts = [f"{text}, edition {year}." for text in passages for year in range(4)]
        >>> embedder = HashingEmbedder(dimension=256)
        >>> source = InMemorySource(embedder.embed_documents(texts), texts)
        >>> recommend(diagnose(source, embedder)).headline.partition(":")[0]
        'Use SIFT here'
    """
    tell = on_progress or (lambda what, done, of: None)
    if sample is None:
        if not isinstance(source, SamplableSource):
            raise InvalidInputError(
                f"a {type(source).__name__} cannot draw documents at random, since it has no "
                f"`sample`; pass the `sample` of another source over the same store"
            )
        tell("drawing chunks", 0, 1)
        sample = source.sample(max(N_CHUNKS, n_questions), np.random.default_rng(seed))
    empty = np.flatnonzero(~sample.embeddings.any(axis=1))
    if len(empty):
        raise CandidateSourceError(
            f"the stored vector of chunk {sample.document_ids[empty[0]]!r} is all zero, so that "
            f"nothing can be compared with it; embed that chunk again, or delete it"
        )
    duplicates = find_duplicates(
        source, sample, seed=seed, on_progress=partial(tell, "looking for near-duplicates")
    )
    pools: tuple[PoolMeasures, ...] = ()
    if sample.n_stored <= N_SELECT:  # all of it is chosen, by whatever
        questions = None
    else:
        questions = questions or stand_ins(sample, n_questions)
        pools = tuple(
            measure_pool(query, pool) for query, pool in _asked(source, embedder, questions, tell)
        )
    return Diagnosis(
        n_stored=sample.n_stored,
        n_sampled=len(sample),
        is_seeded=sample.is_seeded,
        duplicates=duplicates,
        questions=questions,
        pools=pools,
        seed=seed,
    )


def find_duplicates(
    source: CandidateSource,
    sample: DocumentSample,
    *,
    seed: int = 0,
    on_progress: Callable[[int, int], object] | None = None,
) -> Duplicates | None:
    """Return how many sampled chunks have a copy; None where no chunk has another one beside it.

    Asks the store for the 10 nearest of each sampled chunk by its stored vector, so that
    nothing is embedded. An approximate index may miss some, which makes the shares too small.

    Args:
        source: The store that the sample is from.
        sample: At least one chunk.
        seed: Of the intervals.
        on_progress: Called with how many chunks are done, and of how many.

    Raises:
        CandidateSourceError: If the store fails.
        InvalidInputError: If what it returns cannot be compared.
    """
    queries = [
        Query(text=text, embedding=row)
        for text, row in zip(sample.texts, sample.embeddings, strict=True)
    ]
    found: list[float] = []
    is_exact: list[bool] = []
    pools = fetch_all(source, queries, _N_NEAREST + 1, on_progress=on_progress)
    for own, pool in zip(zip(sample.document_ids, sample.texts, strict=True), pools, strict=True):
        names = zip(pool.document_ids, pool.texts, strict=True)  # several may share one id
        others = [position for position, name in enumerate(names) if name != own]
        if others:
            found.append(float(pool.similarities[others].max()))
            is_exact.append(own[1].split() in [pool.texts[row].split() for row in others])
    if not found:
        return None
    cosines, exact = np.array(found), np.array(is_exact)
    near = (cosines >= NEAR_DUPLICATE_COSINE) & ~exact
    return Duplicates(
        near=mean(near.astype(float), seed=seed),
        exact=mean(exact.astype(float), seed=seed),
        cosines=cosines,
    )


def _asked(
    source: CandidateSource, embedder: Embedder, questions: QuestionSet, tell: OnProgress
) -> Iterator[tuple[Query, CandidatePool]]:
    """Yield each question with the candidates that count for it, at least one."""
    queries = [
        Query(
            text=question.text,
            embedding=embedder.embed_query(question.text),
            embedder_name=embedder.name,
        )
        for question in questions.questions
    ]
    n_fetched = N_CANDIDATES + (_EXTRA if questions.origin is None else 0)
    found = fetch_all(source, queries, n_fetched, on_progress=partial(tell, "asking questions"))
    for question, query, pool in zip(questions.questions, queries, found, strict=True):
        kept = _kept(question, pool)
        if not kept:
            raise InvalidInputError(
                f"the store has no candidate for {question.text!r}; does it hold vectors of this "
                f"embedder?"
            )
        yield query, pool.take(np.array(kept[:N_CANDIDATES]))


def _kept(question: Question, pool: CandidatePool) -> list[int]:
    """Return the positions of candidates that are not from the document of a stand-in.

    Where other documents have too few, only its own chunk is left out.
    """
    own = [row for row, name in enumerate(pool.document_ids) if name != question.chunk_id]
    others = [
        row
        for row in own
        if document_of(pool.document_ids[row], pool.metadata[row]) != question.document
    ]
    return others if question.chunk_id is None or len(others) >= FEWEST_TO_READ else own
