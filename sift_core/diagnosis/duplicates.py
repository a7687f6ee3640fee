"""How many chunks of a collection have a near-copy somewhere else in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sift_core.diagnosis.chunk_origins import document_of, printable
from sift_core.diagnosis.fetching import fetch_all
from sift_core.evaluation.analysis.statistics import Estimate, mean
from sift_core.protocols import CandidateSource
from sift_core.types import CandidatePool, DocumentSample, FloatArray, Query

# Cosine from which two chunks count as copies but for details; examples/demo.py has the same for
# what would give a held-back passage away. Guess.
NEAR_DUPLICATE_COSINE = 0.95

# Looked at around each chunk, so that an exact copy of the text is seen among other close chunks.
_N_NEAREST = 10
_N_EXAMPLES = 3  # of each kind
_EXCERPT = 160  # characters


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A sampled chunk and the other chunk that is nearest to it.

    Args:
        cosine: Of their stored vectors.
        first: Opening of the sampled chunk, on one line.
        second: Opening of the other one.
        first_document: Where the sampled chunk is from.
        second_document: Where the other one is from.
    """

    cosine: float
    first: str
    second: str
    first_document: str
    second_document: str


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
        examples: Some near-duplicates, those with different texts first.
    """

    near: Estimate
    exact: Estimate
    cosines: FloatArray
    examples: tuple[Pair, ...]


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
    cosines: list[float] = []
    is_exact: list[bool] = []
    near_pairs: list[Pair] = []
    exact_pairs: list[Pair] = []
    for i, pool in enumerate(fetch_all(source, queries, _N_NEAREST + 1, on_progress=on_progress)):
        others = _others(pool, sample.document_ids[i], sample.texts[i])
        if not others:
            continue
        nearest = max(others, key=lambda row: float(pool.similarities[row]))
        own_text = _without_whitespace(sample.texts[i])
        cosines.append(float(pool.similarities[nearest]))
        is_exact.append(any(_without_whitespace(pool.texts[row]) == own_text for row in others))
        pairs = exact_pairs if is_exact[-1] else near_pairs
        if cosines[-1] >= NEAR_DUPLICATE_COSINE and len(pairs) < _N_EXAMPLES:
            pairs.append(_pair(sample, i, pool, nearest))
    if not cosines:
        return None
    close = np.array(cosines) >= NEAR_DUPLICATE_COSINE
    exact = np.array(is_exact)
    return Duplicates(
        near=mean((close & ~exact).astype(float), seed=seed),
        exact=mean(exact.astype(float), seed=seed),
        cosines=np.array(cosines),
        examples=(*near_pairs, *exact_pairs),
    )


def _others(pool: CandidatePool, document_id: str, text: str) -> list[int]:
    """Return the positions of all but the chunk itself; several may share one id."""
    names = zip(pool.document_ids, pool.texts, strict=True)
    return [row for row, name in enumerate(names) if name != (document_id, text)]


def _without_whitespace(text: str) -> str:
    return " ".join(text.split())


def _pair(sample: DocumentSample, i: int, pool: CandidatePool, row: int) -> Pair:
    return Pair(
        cosine=float(pool.similarities[row]),
        first=printable(sample.texts[i], _EXCERPT),
        second=printable(pool.texts[row], _EXCERPT),
        first_document=printable(document_of(sample.document_ids[i], sample.metadata[i])),
        second_document=printable(document_of(pool.document_ids[row], pool.metadata[row])),
    )
