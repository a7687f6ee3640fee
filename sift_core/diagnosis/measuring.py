"""Everything that is measured of a collection, in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from sift_core.diagnosis.chunk_origins import (
    check_comparable,
    other_documents,
    share_with_document,
)
from sift_core.diagnosis.duplicates import Duplicates, find_duplicates
from sift_core.diagnosis.fetching import fetch_all
from sift_core.diagnosis.pool_measures import N_SELECT, PoolMeasures, measure_pool
from sift_core.diagnosis.questions import Question, QuestionSet, stand_ins
from sift_core.diagnosis.trial import Trial, try_model
from sift_core.errors import InvalidInputError
from sift_core.evaluation.analysis.statistics import Estimate, mean
from sift_core.protocols import CandidateSource, Embedder, SamplableSource
from sift_core.selection.near_duplicates import FEWEST_TO_READ
from sift_core.types import CandidatePool, DocumentSample, Query

if TYPE_CHECKING:  # torch, transformers and peft, seconds to import, for those who pass a model
    from sift_core.answering.engine import AnswerEngine

N_QUESTIONS = 50
N_CHUNKS = 400  # sampled for near-duplicates: a share is then known to ± 4 points (90 %)
N_CANDIDATES = 200
_EXTRA = 50  # candidates fetched for stand-ins, whose own documents are left out. Guess.

OnProgress: TypeAlias = Callable[[str, int, int], object]
"""Called with what is being done, how much of it is done, and of how much."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Diagnosis:
    """What was measured.

    Args:
        n_stored: Chunks in the store.
        n_sampled: Chunks that were drawn from it.
        is_seeded: Whether the same seed draws the same chunks.
        duplicates: Copies in the whole collection; None where there is one chunk.
        questions: What was asked; None where all that is stored would be chosen anyway.
        pools: One for each question that had a candidate.
        n_kept_own: Stand-ins for which other documents had too few candidates, so that only
            the chunk itself was left out.
        share_with_document: Of the sampled chunks, those whose metadata names their document.
        trial: A model on held-back passages; None where no model was given.
        seed: Of the draws and of the intervals.
    """

    n_stored: int
    n_sampled: int
    is_seeded: bool
    duplicates: Duplicates | None
    questions: QuestionSet | None
    pools: tuple[PoolMeasures, ...]
    n_kept_own: int
    share_with_document: float
    trial: Trial | None
    seed: int

    @property
    def are_stand_ins(self) -> bool:
        """Whether sentences of the collection stood in for questions."""
        return self.questions is not None and self.origin is None

    @property
    def origin(self) -> str | None:
        """The file that the questions are from; None where there is none."""
        return None if self.questions is None else self.questions.origin

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
    engine: AnswerEngine | None = None,
    n_passages: int | None = None,
    seed: int = 0,
    on_progress: OnProgress | None = None,
) -> Diagnosis:
    """Return how redundant a collection is, and what SIFT and fine-tuning would change.

    Memory holds the sample and a few pools of candidates, whatever the size of the collection.
    Some 10 s for 100,000 chunks of 384 dimensions in an exact Faiss index and 50 questions,
    besides a model's fine-tunings.

    Args:
        source: The store. Without `sample` it must be able to draw one (`SamplableSource`).
        embedder: The model behind its vectors.
        sample: Chunks that were drawn from it before, at least one; None to draw 400 of them.
        questions: The user's own (`read_questions`); None for openings of sampled chunks.
        n_questions: How many stand-ins at most, >= 1.
        engine: A model to try on held-back passages; None for none.
        n_passages: How many of those at most; None for 8.
        seed: Of all draws and of the intervals.
        on_progress: Called after each part of the work.

    Raises:
        CandidateSourceError: If the store fails, or a sampled vector is not finite or all zero.
        InvalidInputError: If the store is empty or cannot draw a sample, query and store do not
            fit together, or no chunk can stand in for a question or be held back.
        AnswerError: If the model fails.

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
        tell("drawing chunks", 0, 1)
        sample = draw_chunks(source, n_questions, np.random.default_rng(seed))
    check_comparable(sample)
    duplicates = find_duplicates(
        source, sample, seed=seed, on_progress=partial(tell, "looking for near-duplicates")
    )
    pools: list[PoolMeasures] = []
    n_kept_own = 0
    if sample.n_stored > N_SELECT:  # otherwise all of it is chosen, by whatever
        if questions is None:
            questions = stand_ins(sample, n_questions)
        for query, pool, keeps_own in _pools(source, embedder, questions, tell):
            pools.append(measure_pool(query, pool))
            n_kept_own += keeps_own
    else:
        questions = None
    trial = None
    if engine is not None:
        options = {} if n_passages is None else {"n_passages": n_passages}
        trial = try_model(
            engine,
            source,
            embedder,
            sample,
            seed=seed,
            on_progress=partial(tell, "trying the model"),
            **options,
        )
    return Diagnosis(
        n_stored=sample.n_stored,
        n_sampled=len(sample),
        is_seeded=sample.is_seeded,
        duplicates=duplicates,
        questions=questions,
        pools=tuple(pools),
        n_kept_own=n_kept_own,
        share_with_document=share_with_document(sample),
        trial=trial,
        seed=seed,
    )


def draw_chunks(
    source: CandidateSource, n_questions: int, generator: np.random.Generator
) -> DocumentSample:
    """Return as many random chunks as a diagnosis needs.

    Args:
        source: The store.
        n_questions: How many of them may have to stand in for questions, >= 1.
        generator: What to draw with.

    Raises:
        CandidateSourceError: If the store fails, or a drawn vector is not finite.
        InvalidInputError: If the store is empty, or cannot draw.
    """
    if not isinstance(source, SamplableSource):
        raise InvalidInputError(
            f"a {type(source).__name__} cannot draw documents at random, since it has no `sample`; "
            f"pass the `sample` of another source over the same store"
        )
    return source.sample(max(N_CHUNKS, n_questions), generator)


def _pools(
    source: CandidateSource,
    embedder: Embedder,
    questions: QuestionSet,
    tell: OnProgress,
) -> Iterator[tuple[Query, CandidatePool, bool]]:
    """Yield each question with its candidates, and whether its own document is among them."""
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
        kept, keeps_own = _kept(question, pool)
        if not kept:
            raise InvalidInputError(
                f"the store has no candidate for {question.text!r}; does it hold vectors of this "
                f"embedder?"
            )
        yield query, pool.take(np.array(kept[:N_CANDIDATES])), keeps_own


def _kept(question: Question, pool: CandidatePool) -> tuple[list[int], bool]:
    """Return the positions that count for a question, and whether its own document does."""
    if question.chunk_id is None or question.document is None:
        return list(range(len(pool))), False
    others = other_documents(pool, question.chunk_id, question.document)
    if len(others) >= FEWEST_TO_READ:
        return others, False
    own = [row for row, key in enumerate(pool.document_ids) if key != question.chunk_id]
    return own, True
