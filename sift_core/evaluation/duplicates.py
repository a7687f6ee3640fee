"""How many chunks of a collection have a copy, estimated from a sample."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from sift_core.evaluation.statistics import Estimate, mean
from sift_core.protocols import BatchCandidateSource, CandidateSource
from sift_core.repeats import COPY_COSINE
from sift_core.types import CandidatePool, DocumentSample, FloatArray, Query

_N_NEAREST = 10  # looked at around each chunk, to see an exact copy among other close chunks
_CANDIDATES_AT_ONCE = 2_500  # 10 MB of vectors of 1,024 dimensions, whatever `n_candidates` is

OnProgress: TypeAlias = Callable[[str, int, int], object]
"""Called with the name of the work, how much of it is done, and of how much."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Duplicates:
    """Copies in the whole collection, estimated from a sample.

    Intervals are over sampled chunks. They are too wide if the whole collection was sampled.

    Args:
        near: Share of chunks whose nearest other chunk has a cosine of at least `COPY_COSINE` and
            another text.
        exact: Share of chunks whose text another chunk has too, but for whitespace.
        cosines: Of each sampled chunk to its nearest other one, shape (n,).
    """

    near: Estimate
    exact: Estimate
    cosines: FloatArray


def find_duplicates(
    source: CandidateSource,
    sample: DocumentSample,
    *,
    seed: int = 0,
    on_progress: OnProgress = lambda work, done, of: None,
) -> Duplicates | None:
    """Return how many sampled chunks have a copy; None if the store has a single chunk.

    Asks the store for the 10 nearest of each sampled chunk by its stored vector, so that
    nothing is embedded. An approximate index may miss some, which makes the shares too small.

    Args:
        source: The store that the sample is from.
        sample: At least one chunk.
        seed: Of the intervals.
        on_progress: Called after each batch of chunks. Default: none.

    Raises:
        CandidateSourceError: If the store fails.
        InvalidInputError: If its vectors cannot be compared.
    """
    queries = [
        Query(text=text, embedding=row)
        for text, row in zip(sample.texts, sample.embeddings, strict=True)
    ]
    found: list[float] = []
    is_exact: list[bool] = []
    pools = fetch_pools(source, queries, _N_NEAREST + 1, on_progress, "looking for near-duplicates")
    for own, text, pool in zip(sample.document_ids, sample.texts, pools, strict=True):
        names = zip(pool.document_ids, pool.texts, strict=True)  # several may share one id
        others = [row for row, name in enumerate(names) if name != (own, text)]
        if others:
            found.append(float(pool.similarities[others].max()))
            is_exact.append(text.split() in [pool.texts[row].split() for row in others])
    if not found:
        return None
    cosines, exact = np.array(found), np.array(is_exact)
    near = (cosines >= COPY_COSINE) & ~exact
    return Duplicates(near=mean(near, seed=seed), exact=mean(exact, seed=seed), cosines=cosines)


def fetch_pools(
    source: CandidateSource,
    queries: Sequence[Query],
    n_candidates: int,
    on_progress: OnProgress,
    work: str,
) -> Iterator[CandidatePool]:
    """Yield the pool of each query, in order; a few are in memory at a time."""
    step = max(1, _CANDIDATES_AT_ONCE // n_candidates)
    for start in range(0, len(queries), step):
        some = queries[start : start + step]
        if isinstance(source, BatchCandidateSource):
            yield from source.fetch_batch(some, n_candidates)
        else:
            yield from (source.fetch(query, n_candidates) for query in some)
        on_progress(work, start + len(some), len(queries))
