"""Everything that is measured of a collection, in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from sift_core.diagnosis.chunk_sample import ChunkSample, other_documents
from sift_core.diagnosis.duplicates import Duplicates, find_duplicates
from sift_core.diagnosis.fetching import fetch_all
from sift_core.diagnosis.pool_measures import N_SELECT, PoolMeasures, measure_pool
from sift_core.diagnosis.questions import Question, QuestionSet, stand_ins
from sift_core.diagnosis.trial import Trial, try_model
from sift_core.errors import InvalidInputError
from sift_core.evaluation.analysis.statistics import Estimate, mean
from sift_core.pipeline import AnswerEngine
from sift_core.protocols import CandidateSource, Embedder
from sift_core.selection.versions import FEWEST_TO_READ
from sift_core.types import CandidatePool, Query

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
        return self.questions is not None and self.questions.origin is None

    def over_questions(self, measure: Callable[[PoolMeasures], float]) -> Estimate:
        """Return the mean of a measure over the questions, with its bootstrap interval.

        Raises:
            InvalidInputError: If no question was measured.
        """
        return mean([measure(pool) for pool in self.pools], seed=self.seed)


def diagnose(
    source: CandidateSource,
    sample: ChunkSample,
    embedder: Embedder,
    *,
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
        source: The store.
        sample: Drawn from it, at least one chunk.
        embedder: The model behind its vectors.
        questions: The user's own; None for openings of sampled chunks.
        n_questions: How many stand-ins at most, >= 1.
        engine: A model to try on held-back passages; None for none.
        n_passages: How many of those at most; None for `trial.N_PASSAGES`.
        seed: Of the intervals.
        on_progress: Called after each part of the work.

    Raises:
        CandidateSourceError: If the store fails.
        InvalidInputError: If query and store do not fit together, or no chunk can stand in for
            a question or be held back.
        AnswerError: If the model fails.
    """
    tell = on_progress or (lambda what, done, of: None)
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
        share_with_document=sample.share_with_document,
        trial=trial,
        seed=seed,
    )


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
