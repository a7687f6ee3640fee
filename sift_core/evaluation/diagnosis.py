"""How redundant a collection is, and what two ways to choose ten chunks make of its questions.

The paper's σ² → `variance`, η² → `variance_floor`, both as shares of σ² before any chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial

import numpy as np

from sift_core.checks import short_repr, warn
from sift_core.embedders.unrelated import baseline_of
from sift_core.errors import EmptyEntryWarning, InvalidInputError
from sift_core.evaluation.duplicates import Duplicates, OnProgress, fetch_pools, find_duplicates
from sift_core.evaluation.questions import Question, QuestionSet, document_name, stand_ins
from sift_core.evaluation.statistics import Estimate, mean
from sift_core.protocols import CandidateSource, Embedder, SamplableSource
from sift_core.repeats import repeats_of
from sift_core.selection.baselines import NearestNeighborSelector
from sift_core.selection.context import ContextSelector, distinct
from sift_core.selection.explain import irreducible_variance
from sift_core.selection.kernels import unit_rows
from sift_core.selection.near_duplicates import FEWEST_TO_READ
from sift_core.selection.posterior import posterior_variances
from sift_core.selection.topic import is_off_topic, no_baseline
from sift_core.sources.oversampling import DISTINCT_A_CHOICE, LARGEST_SHARE
from sift_core.types import CandidatePool, DocumentSample, FloatArray, IntArray, Query

N_QUESTIONS = 50
N_CHUNKS = 400  # sampled for near-duplicates: a share is then exact to ± 4 points (90 %)
N_CANDIDATES = 200
N_SELECT = 10
_EXTRA = 50  # candidates fetched for stand-ins, whose own documents are left out. Guess.

# Of two candidates of one question. From here on the cosine of 0.8 is nothing special for an
# embedding model: unrelated chunks have 0.1 for one and 0.7 for another (decision 0006). Guess
# between them; places are then counted by versions, which are read from the pool.
HIGH_MEAN_COSINE = 0.6

# Candidates with fewer contents make `OversamplingSource` fetch again (decision 0008, measured), or
# with less than this share of them.
FEW_CONTENTS = DISTINCT_A_CHOICE * N_SELECT


@dataclass(frozen=True, kw_only=True)
class TopTen:
    """The chunks that one selector chose for one question.

    Args:
        document_ids: In order of choice; `N_SELECT`, or all candidates if there are fewer.
        n_redundant: How many have a cosine of `REDUNDANT_COSINE` or more to an earlier one.
        n_versions: How many are versions of a more relevant candidate, chosen or not, as
            `ContextSelector` tells versions (decision 0006); comparable between embedding models.
        variance: Which share of σ² is left at the question given all of them, in the paper's
            setting (linear kernel, λ = 0.01), in [0, 1].
    """

    document_ids: tuple[str, ...]
    n_redundant: int
    n_versions: int
    variance: float


@dataclass(frozen=True, kw_only=True)
class PoolMeasures:
    """All measures of one question.

    Args:
        question: Its text.
        n_candidates: Number of candidates, without the stand-in's own document.
        n_distinct: How many of them are no version of a more relevant one.
        mean_cosine: Of two different contents; 0 if there is one.
        variance_floor: The share of σ² that no choice from these candidates can remove.
        n_shared: How many chunks `nearest` and `sift` have in common.
        nearest: The nearest neighbours.
        sift: The choice of `ContextSelector`.
        is_off_topic: Whether mode "auto" would refuse the question.
    """

    question: str
    n_candidates: int
    n_distinct: int
    mean_cosine: float
    variance_floor: float
    n_shared: int
    nearest: TopTen
    sift: TopTen
    is_off_topic: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Diagnosis:
    """All measures of a collection.

    Args:
        n_stored: Chunks in the store.
        n_sampled: Chunks that were drawn from it.
        is_seeded: Whether the same seed draws the same chunks.
        duplicates: Copies in the whole collection; None if there is one chunk.
        questions: The questions; None if a choice would take the whole store anyway.
        pools: One for each question.
        seed: Of the draws and of the intervals.

    Example:
        >>> diagnosis = diagnose(source, embedder)
        >>> diagnosis.n_stored, diagnosis.n_sampled
        (4, 4)
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

    @cached_property
    def counts_versions(self) -> bool:
        """Whether places are counted by versions, since all cosines are high."""
        return bool(self.pools) and (
            self.over_questions(lambda pool: pool.mean_cosine).value >= HIGH_MEAN_COSINE
        )

    def wasted(self, ten: TopTen) -> int:
        """Return how many of ten places repeat another chunk, as the verdict counts them."""
        return ten.n_versions if self.counts_versions else ten.n_redundant

    @cached_property
    def repeated_places(self) -> Estimate:
        """In how many places of ten nearest neighbours repeat themselves."""
        return self.over_questions(lambda pool: self.wasted(pool.nearest))

    @cached_property
    def freed_places(self) -> Estimate:
        """How many places of ten SIFT frees."""
        return self.over_questions(lambda pool: self.wasted(pool.nearest) - self.wasted(pool.sift))

    @cached_property
    def share_of_poor_pools(self) -> float:
        """The share of questions with too few contents, as `OversamplingSource` counts."""
        return self.over_questions(
            lambda pool: pool.n_distinct < min(FEW_CONTENTS, LARGEST_SHARE * pool.n_candidates)
        ).value


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
        sample: Chunks that were drawn from it before, at least one. Default: draw 400.
        questions: Your own (`read_questions`). Default: openings of sampled chunks.
        n_questions: How many stand-ins at most, >= 1.
        seed: Of all draws and of the intervals.
        on_progress: Called after each part of the work. Default: none.

    Raises:
        CandidateSourceError: If the store fails, or a sampled vector is not finite.
        InvalidInputError: If the store is empty or cannot draw a sample, all sampled vectors are
            zero, query and store do not fit together, or no chunk can stand in for a question.

    Example:
        >>> from sift_core import InMemorySource
        >>> from sift_core.evaluation import diagnose, recommend
        >>> from sift_core.testing import HashingEmbedder
        >>> passages = [" ".join(f"word{i * j % 997}" for j in range(1, 9)) for i in range(1, 61)]
        >>> texts = [f"{text}, edition {year}." for text in passages for year in range(4)]
        >>> embedder = HashingEmbedder(dimension=256)
        >>> source = InMemorySource(embedder.embed_documents(texts), texts)
        >>> recommend(diagnose(source, embedder)).headline.partition(":")[0]
        'Use SIFT here'
    """
    report = on_progress or (lambda work, done, of: None)
    empty: set[str] = set()  # ids of vectors of zeros
    if sample is None:
        if not isinstance(source, SamplableSource):
            raise InvalidInputError(
                f"a {type(source).__name__} cannot draw documents at random, since it has no "
                f"`sample`; pass the `sample` of another source over the same store"
            )
        report("drawing chunks", 0, 1)
        sample = source.sample(max(N_CHUNKS, n_questions), np.random.default_rng(seed))
    rows = _filled(sample.embeddings, sample.document_ids, empty)
    if not rows:
        raise InvalidInputError(
            f"the vectors of all sampled chunks are all zero, as of {min(empty)!r}, so that "
            f"nothing can be compared; embed the collection again"
        )
    sample = replace(
        sample,
        document_ids=[sample.document_ids[row] for row in rows],
        texts=[sample.texts[row] for row in rows],
        embeddings=sample.embeddings[rows],
        metadata=[sample.metadata[row] for row in rows],
    )
    duplicates = find_duplicates(source, sample, seed=seed, on_progress=report)
    pools: tuple[PoolMeasures, ...] = ()
    if sample.n_stored <= N_SELECT:  # any selector chooses all of it
        questions = None
    else:
        questions = questions or stand_ins(sample, n_questions)
        pools = tuple(_measured(source, embedder, questions, report, empty))
    if empty:
        warn(
            f"{len(empty)} of the chunks that were read are left out, since their vectors are all "
            f"zero: {short_repr(sorted(empty))}; was an empty text embedded? Delete them, or embed "
            f"them again",
            EmptyEntryWarning,
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


def _filled(embeddings: FloatArray, document_ids: Sequence[str], empty: set[str]) -> list[int]:
    """Return the positions of rows that are not all zero; add the ids of the others to a set."""
    has_vector = embeddings.any(axis=1)
    empty.update(document_ids[row] for row in np.flatnonzero(~has_vector).tolist())
    filled: list[int] = np.flatnonzero(has_vector).tolist()
    return filled


def _measured(
    source: CandidateSource,
    embedder: Embedder,
    questions: QuestionSet,
    on_progress: OnProgress,
    empty: set[str],
) -> Iterator[PoolMeasures]:
    """Yield the measures of each question, over the candidates that count for it.

    The ids of candidates with a vector of zeros are added to `empty`.
    """
    texts = [question.text for question in questions.questions]
    name, embed = embedder.name, embedder.embed_query
    queries = [Query(text=one, embedding=embed(one), embedder_name=name) for one in texts]
    baseline = cache(partial(baseline_of, embedder))
    n_fetched = N_CANDIDATES + (_EXTRA if questions.origin is None else 0)
    found = fetch_pools(source, queries, n_fetched, on_progress, "asking questions")
    for question, query, pool in zip(questions.questions, queries, found, strict=True):
        pool = pool.take(_filled(pool.embeddings, pool.document_ids, empty))
        kept = _kept(question, pool)
        if not kept:
            raise InvalidInputError(
                f"the store has no candidate for {question.text!r}; does it hold vectors of this "
                f"embedder?"
            )
        rows = np.array(kept[:N_CANDIDATES])
        yield measure_pool(query, pool.take(rows), baseline=baseline)


def _kept(question: Question, pool: CandidatePool) -> list[int]:
    """Return the positions of candidates that are not from the document of a stand-in.

    If other documents have too few, only its own chunk is left out.
    """
    own = [row for row, name in enumerate(pool.document_ids) if name != question.chunk_id]
    others = [
        row
        for row in own
        if document_name(pool.document_ids[row], pool.metadata[row]) != question.document
    ]
    return others if question.chunk_id is None or len(others) >= FEWEST_TO_READ else own


def measure_pool(
    query: Query, pool: CandidatePool, *, baseline: Callable[[], float] = no_baseline
) -> PoolMeasures:
    """Return the measures of one question's candidates.

    Takes some 30 ms for 200 candidates of 384 dimensions.

    Args:
        query: The question.
        pool: Its candidates, at least one, none all zero.
        baseline: Returns the embedder's cosine for unrelated texts. Default: 0.
    """
    own = distinct(query.vector, pool.embeddings)
    nearest = NearestNeighborSelector().select(query.vector, pool.embeddings, N_SELECT).positions
    sift = ContextSelector().select(query.vector, pool.embeddings, N_SELECT).positions
    rows = unit_rows(pool.embeddings[own])
    pairs = (rows @ rows.T)[np.triu_indices(len(own), k=1)]
    before = float(posterior_variances(query.vector, pool.embeddings[:0])[0])
    return PoolMeasures(
        question=query.text,
        n_candidates=len(pool),
        n_distinct=len(own),
        mean_cosine=float(pairs.mean()) if len(pairs) else 0.0,
        variance_floor=irreducible_variance(query.vector, pool.embeddings) / before,
        n_shared=len(np.intersect1d(nearest, sift)),
        nearest=_top_ten(query, pool, nearest, own),
        sift=_top_ten(query, pool, sift, own),
        is_off_topic=is_off_topic(pool, baseline=baseline),
    )


def _top_ten(query: Query, pool: CandidatePool, positions: IntArray, own: IntArray) -> TopTen:
    chosen = pool.take(positions)
    variances = posterior_variances(query.vector, chosen.embeddings)
    return TopTen(
        document_ids=tuple(chosen.document_ids),
        n_redundant=sum(repeat is not None for repeat in repeats_of(chosen.embeddings)),
        n_versions=int(np.count_nonzero(~np.isin(positions, own))),
        variance=float(variances[-1] / variances[0]),
    )
