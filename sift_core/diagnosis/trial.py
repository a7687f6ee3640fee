"""Whether fine-tuning pays: a model tried on chunks of the collection that it does not see."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sift_core.diagnosis.chunk_origins import document_of, other_documents, printable
from sift_core.diagnosis.duplicates import NEAR_DUPLICATE_COSINE
from sift_core.diagnosis.questions import stand_in
from sift_core.errors import InvalidInputError
from sift_core.evaluation.analysis.statistics import Estimate, mean
from sift_core.protocols import CandidateSource, Embedder
from sift_core.types import AnswerMode, CandidatePool, DocumentSample, FloatArray, Query

if TYPE_CHECKING:  # torch, transformers and peft, seconds to import, for those who pass a model
    from sift_core.answering.engine import AnswerEngine

N_PASSAGES = (
    8  # the fewest with which an interval means something; each costs a fine-tuning. Guess.
)
SMALLEST_PASSAGE = 300  # bytes, as in examples/demo.py: a shorter one says little about a model
FEWEST_CANDIDATES = 10  # from other documents, or there is nothing to learn from. Guess.
MODES = (AnswerMode.BASE, AnswerMode.CONTEXT, AnswerMode.FINE_TUNE)

_EXTRA = 50  # candidates fetched beyond the engine's, for those that are left out. Guess.


@dataclass(frozen=True, kw_only=True)
class Passage:
    """What one held-back passage showed.

    Args:
        document_id: The chunk that was held back, on one line.
        n_bytes: Length of its text in UTF-8.
        bits_per_byte: By mode; lower is better.
        seconds: By mode, from the candidates to the score, fine-tuning included.
    """

    document_id: str
    n_bytes: int
    bits_per_byte: Mapping[AnswerMode, float]
    seconds: Mapping[AnswerMode, float]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What all held-back passages showed.

    Args:
        passages: At least one.
        n_steps: Training steps of a fine-tuning at most.
        n_tried: How many sampled chunks were looked at to find the passages.
        seed: Of the intervals.
    """

    passages: tuple[Passage, ...]
    n_steps: int
    n_tried: int
    seed: int = 0

    def bits_per_byte(self, mode: AnswerMode) -> Estimate:
        """Return the mean over passages, each counting the same."""
        return mean([passage.bits_per_byte[mode] for passage in self.passages], seed=self.seed)

    def seconds(self, mode: AnswerMode) -> float:
        """Return the median seconds a passage; the first one also warms the model up."""
        return float(np.median([passage.seconds[mode] for passage in self.passages]))

    def difference(self, mode: AnswerMode, other: AnswerMode) -> Estimate:
        """Return the mean of bits per byte of `mode` less `other` on the same passages.

        Below 0 `mode` is better.
        """
        return mean(
            [p.bits_per_byte[mode] - p.bits_per_byte[other] for p in self.passages], seed=self.seed
        )


def is_shown(difference: Estimate) -> bool:
    """Return whether a difference has one sign all over its interval; never for one passage."""
    return difference.low > 0 or difference.high < 0


def try_model(
    engine: AnswerEngine,
    source: CandidateSource,
    embedder: Embedder,
    sample: DocumentSample,
    *,
    n_passages: int = N_PASSAGES,
    seed: int = 0,
    on_progress: Callable[[int, int], object] | None = None,
) -> Trial:
    """Return how well a model predicts passages alone, with chunks in its context, and tuned.

    For each passage its heading and first sentence stand in for a question. What is chosen for
    that comes from other documents, without near-copies of the passage (cosine >=
    `NEAR_DUPLICATE_COSINE`) and without chunks that hold it or that it holds: predicting what
    was just read would be cheating.

    Takes n_passages fine-tunings.

    Args:
        engine: The model with its settings; its source is not asked.
        source: The store.
        embedder: Of the store.
        sample: Chunks in random order; one passage a document is taken.
        n_passages: How many at most, >= 1.
        seed: Of the intervals.
        on_progress: Called with how many scores were made, and of how many.

    Raises:
        InvalidInputError: If no sampled chunk is long enough and has other documents beside it.
        CandidateSourceError: If the store fails.
        AnswerError: If the model fails.
    """
    passages: list[Passage] = []
    n_tried = 0
    seen: set[str] = set()
    for row, text in enumerate(sample.texts):
        if len(passages) == n_passages:
            break
        document = document_of(sample.document_ids[row], sample.metadata[row])
        question = stand_in(text, sample.metadata[row].get("heading"))
        if document in seen or not question or len(text.encode()) < SMALLEST_PASSAGE:
            continue
        n_tried += 1
        query = Query(
            text=question, embedding=embedder.embed_query(question), embedder_name=embedder.name
        )
        pool = source.fetch(query, engine.n_candidates + _EXTRA)
        kept = _without_copies(pool, sample, row)[: engine.n_candidates]
        if len(kept) < FEWEST_CANDIDATES:
            continue
        seen.add(document)

        def done(n_modes: int, before: int = len(MODES) * len(passages)) -> None:
            if on_progress is not None:
                on_progress(before + n_modes, len(MODES) * n_passages)

        passages.append(_tried(engine, query, pool.take(kept), sample, row, done))
    if not passages:
        raise InvalidInputError(
            f"none of {len(sample)} sampled chunks can be held back to try the model on: one needs "
            f"{SMALLEST_PASSAGE} bytes and {FEWEST_CANDIDATES} candidates from other documents "
            f"that are no copies of it; leave --model out, or index larger chunks"
        )
    return Trial(passages=tuple(passages), n_steps=engine.n_steps, n_tried=n_tried, seed=seed)


def _without_copies(pool: CandidatePool, sample: DocumentSample, row: int) -> list[int]:
    """Return the positions of candidates that do not give a sampled chunk away."""
    text = sample.texts[row]
    document = document_of(sample.document_ids[row], sample.metadata[row])
    others = other_documents(pool, sample.document_ids[row], document)
    cosines = _cosines(pool.embeddings, sample.embeddings[row])
    return [
        position
        for position in others
        if cosines[position] < NEAR_DUPLICATE_COSINE
        and text not in pool.texts[position]
        and pool.texts[position] not in text
    ]


def _cosines(rows: FloatArray, vector: FloatArray) -> FloatArray:
    rows, vector = rows.astype(np.float64), vector.astype(np.float64)
    lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(vector)
    cosines: FloatArray = rows @ vector / np.where(lengths > 0, lengths, 1.0)
    return cosines


def _tried(
    engine: AnswerEngine,
    query: Query,
    pool: CandidatePool,
    sample: DocumentSample,
    row: int,
    done: Callable[[int], None],
) -> Passage:
    bits: dict[AnswerMode, float] = {}
    seconds: dict[AnswerMode, float] = {}
    for number, mode in enumerate(MODES, start=1):
        started = time.perf_counter()
        choice = engine.choose_from(query, pool, mode=mode.value)
        with engine.prepared(choice) as model:
            bits[mode] = model.bits_per_byte(sample.texts[row])
        seconds[mode] = time.perf_counter() - started
        done(number)
    return Passage(
        document_id=printable(sample.document_ids[row]),
        n_bytes=len(sample.texts[row].encode()),
        bits_per_byte=bits,
        seconds=seconds,
    )


def as_records(trial: Trial) -> Sequence[Mapping[str, object]]:
    """Return the passages as plain values, for JSON."""
    return [
        {
            "document_id": passage.document_id,
            "n_bytes": passage.n_bytes,
            "bits_per_byte": {mode.value: bits for mode, bits in passage.bits_per_byte.items()},
            "seconds": {mode.value: seconds for mode, seconds in passage.seconds.items()},
        }
        for passage in trial.passages
    ]
