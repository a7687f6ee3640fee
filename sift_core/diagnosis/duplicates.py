"""How many chunks of a collection have a near-copy somewhere else in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sift_core.diagnosis.pools import fetch_all
from sift_core.evaluation.statistics import Estimate, mean
from sift_core.protocols import CandidateSource
from sift_core.types import DocumentSample, FloatArray, Query

# Cosine from which two chunks count as copies but for details; examples/demo.py has the same for
# what would give a held-back passage away. Guess.
NEAR_DUPLICATE_COSINE = 0.95

# Looked at around each chunk, so that an exact copy of the text is seen among other close chunks.
_N_NEAREST = 10


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
