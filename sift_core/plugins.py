"""What plugins share: a pool of what a framework found, and the vectors that it lacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Sized
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np

from sift_core.errors import InvalidInputError
from sift_core.selection.cosines import cosine_similarities
from sift_core.selection.scores import relevance_of_scores
from sift_core.types import CandidatePool, FloatArray
from sift_core.vector_lookup import vectors_by_id

__all__ = ["fill_gaps", "look_up_missing", "mark_blank", "pool_for_query"]

_BLANK: tuple[float, ...] = (0.0,)
Pool = TypeVar("Pool", bound=CandidatePool)
Vectors: TypeAlias = Sequence[Any] | FloatArray  # a missing one is None


def pool_for_query(
    kind: type[Pool],
    query: FloatArray,
    embeddings: Vectors,
    *,
    use_scores: bool | None = False,
    searched_by: FloatArray | None = None,
    **columns: Any,
) -> Pool:
    """Return found documents as a pool with their cosines.

    Args:
        kind: Class of the pool.
        query: The query's vector, shape (d,), or those of several queries, shape (m, d). A cosine
            is that with the nearest of m.
        embeddings: A vector for each document, shape (n, d) or n rows. The mark of `mark_blank`
            becomes zeros, which `choose` leaves out.
        use_scores: Whether `scores` become the pool's `relevance`, as in `relevance_of_scores`.
            Default: never.
        searched_by: Vector that a store's scores compare with, shape (d,). Default: `query`.
        **columns: The other columns of the pool.

    Raises:
        InvalidInputError: If lengths differ, a number is not finite, or `use_scores` is True and
            a document has no finite score.
    """
    d = query.shape[-1]
    if any(row is _BLANK for row in embeddings):
        embeddings = [np.zeros(d) if row is _BLANK else row for row in embeddings]
    lengths = {len(row) if isinstance(row, Sized) else 0 for row in embeddings}  # 0: a number
    if lengths - {d}:
        raise InvalidInputError(
            f"the query has {d} dimensions, the documents have {sorted(lengths)}; were all "
            f"embedded by one model?"
        )
    rows = np.asarray(embeddings) if len(embeddings) else np.empty((0, d), dtype=np.float32)
    with np.errstate(invalid="ignore", over="ignore"):  # the pool refuses what is not finite
        similarities = cosines = cosine_similarities(query, rows)
        if searched_by is not None:
            cosines = cosine_similarities(searched_by, rows)
    if use_scores is not False:
        columns["relevance"] = relevance_of_scores(
            columns["scores"], cosines, document_ids=columns["document_ids"], use_scores=use_scores
        )
    return kind(embeddings=rows, similarities=similarities, **columns)


def mark_blank(vectors: Vectors, texts: Sequence[str | None]) -> Sequence[Any]:
    """Return n vectors with a mark for each that is missing and whose text is blank.

    Such a text need not be embedded: it says nothing, and some models refuse it or return NaN.
    """
    pairs = zip(vectors, texts, strict=True)
    return [_BLANK if row is None and not (text or "").strip() else row for row, text in pairs]


def fill_gaps(vectors: Vectors, others: Vectors) -> Sequence[Any]:
    """Return the vectors with each None replaced by the next of `others`, which are as many."""
    if len(others) == len(vectors):
        return cast("Sequence[Any]", others)  # all were missing; a matrix stays one
    rest = iter(others)
    return [next(rest) if vector is None else vector for vector in vectors]


def look_up_missing(
    vectors: Vectors,
    ids: Sequence[str | None],
    look_up: Callable[[list[str]], Mapping[str, Any]] | None,
) -> Sequence[Any]:
    """Return n vectors, the missing ones looked up by id.

    Args:
        vectors: n vectors. A missing one is None.
        ids: n ids. A document without one has None.
        look_up: As `vectors` of `vectors_by_id`. Default: nothing is looked up.
    """
    if look_up is None:
        return cast("Sequence[Any]", vectors)
    missing = [name for name, vector in zip(ids, vectors, strict=True) if vector is None]
    return fill_gaps(vectors, vectors_by_id(look_up, missing))
