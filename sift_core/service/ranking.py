"""All documents of a request in order: the choice first, the rest by similarity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sift_core.checks import as_finite_array
from sift_core.choice import choose
from sift_core.errors import InvalidInputError
from sift_core.options import ChoiceOptions
from sift_core.selection.cosines import cosine_similarities
from sift_core.types import CandidatePool, FloatArray, Metadata, Query

# Documents that are put into order of choice, and from how many of the nearest: no reader looks at
# more, and all of 10,000 documents would take a minute.
MAX_CHOICES = 256
MAX_CANDIDATES = 1000


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """All documents in order.

    Args:
        order: Positions of the n documents: those chosen in order of choice, then the others by
            similarity, then those without text.
        scores: One each of `order`, falling from 1 to 1 / n. They give the rank and nothing else:
            a client that sorts by them keeps the order of choice.
        n_chosen: How many of `order` were chosen, the first ones.
    """

    order: list[int]
    scores: list[float]
    n_chosen: int


def ranked(
    texts: Sequence[str],
    metadata: Sequence[Metadata],
    query: str,
    question: FloatArray,
    vectors: FloatArray,
    options: ChoiceOptions,
    *,
    positions: Sequence[int] | None = None,
) -> Ranking:
    """Return documents in order of choice.

    Takes O(min(n, 500) · min(n, 1000) · (d + k)) time and one pass over all vectors.

    Args:
        texts: Of n documents.
        metadata: Of each of them.
        query: The question.
        question: Its vector, shape (d,).
        vectors: Of the documents that have one, shape (m, d).
        options: Options of the choice; at most 256 documents are chosen.
        positions: Positions of those documents. Default: all.

    Raises:
        InvalidInputError: If shapes do not fit, a number is not finite, or a vector is all zero.
    """
    question = as_finite_array("query_embedding", question, n_dimensions=1)
    vectors = as_finite_array("embeddings", vectors, n_dimensions=2)
    if vectors.shape[1] != len(question):
        raise InvalidInputError(
            f"`embeddings` must have {len(question)} numbers each like the query's, got "
            f"{vectors.shape[1]}; were both made by one model?"
        )
    if not (is_filled := vectors.any(axis=1)).all():
        raise InvalidInputError(
            f"`embeddings` must not be all zero, got such a vector at {int(is_filled.argmin())}; "
            f"was an empty text embedded?"
        )
    n, first, n_chosen = len(texts), [], 0
    at = range(n) if positions is None else positions
    cosines = cosine_similarities(question, vectors)
    rows = np.argsort(-cosines, kind="stable")
    near = rows[:MAX_CANDIDATES]
    if len(near):
        pool = CandidatePool(
            document_ids=[str(at[row]) for row in near.tolist()],
            texts=[texts[at[row]] for row in near.tolist()],
            embeddings=vectors[near],
            similarities=cosines[near],
            metadata=[metadata[at[row]] for row in near.tolist()],
        )
        options = replace(options, n_select=min(options.n_select, MAX_CHOICES))
        chosen = choose(pool, Query(text=query, embedding=question), options)
        first, n_chosen = [int(name) for name in chosen.ranking()], len(chosen)
    order = list(dict.fromkeys([*first, *(at[row] for row in rows.tolist()), *range(n)]))
    return Ranking(order=order, scores=[(n - i) / n for i in range(n)], n_chosen=n_chosen)
