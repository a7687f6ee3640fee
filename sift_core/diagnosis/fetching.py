"""Asking a source for many queries, a few at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from sift_core.protocols import BatchCandidateSource, CandidateSource
from sift_core.types import CandidatePool, Query

_CANDIDATES_AT_ONCE = 2_500  # 10 MB of vectors of 1,024 dimensions, whatever `n_candidates` is


def fetch_all(
    source: CandidateSource,
    queries: Sequence[Query],
    n_candidates: int,
    *,
    on_progress: Callable[[int, int], object] | None = None,
) -> Iterator[CandidatePool]:
    """Yield the pool of each query, in order; a few are in memory at a time.

    Args:
        source: Any source; one without batches is asked query by query.
        queries: What to ask.
        n_candidates: As for `fetch`.
        on_progress: Called with how many queries were answered, and of how many.

    Raises:
        CandidateSourceError: If the store fails.
        InvalidInputError: If queries and store do not fit together.
    """
    step = max(1, _CANDIDATES_AT_ONCE // n_candidates)
    for start in range(0, len(queries), step):
        some = queries[start : start + step]
        if isinstance(source, BatchCandidateSource):
            yield from source.fetch_batch(some, n_candidates)
        else:
            yield from (source.fetch(query, n_candidates) for query in some)
        if on_progress is not None:
            on_progress(start + len(some), len(queries))
