"""Texts ranked by what they say together: the choice first, the rest by similarity."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from sift_core.checks import as_finite_array
from sift_core.errors import InvalidInputError
from sift_core.protocols import Selector
from sift_core.repeated_texts import select_texts
from sift_core.selection.context import ContextSelector
from sift_core.selection.cosines import cosine_similarities
from sift_core.service.vectors import KeptEmbedder
from sift_core.types import FloatArray

# What is chosen in order, and from how many of the nearest: no reader looks at more, and all of
# 10,000 documents would take a minute.
MAX_CHOICES = 256
MAX_CANDIDATES = 1000


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """All documents in order.

    Args:
        order: Positions of the n documents: those chosen in order of choice, then the others by
            similarity, then those without text.
        scores: One each of `order`, falling from 1 to 1 / n. They tell the rank and nothing else:
            a client that sorts by them keeps the order of choice.
        n_chosen: How many of `order` were chosen, the first ones.
    """

    order: list[int]
    scores: list[float]
    n_chosen: int


Limit: TypeAlias = Callable[[Sequence[int]], Mapping[str, Any]]
"""Documents at some positions → what a selector's `select` takes as limits on them."""


def ranked(
    question: FloatArray,
    vectors: FloatArray,
    n_select: int,
    *,
    positions: Sequence[int] | None = None,
    n_documents: int | None = None,
    selector: Selector | None = None,
    limit: Limit | None = None,
    text_of: Callable[[int], str] = lambda row: "",
) -> Ranking:
    """Return documents in order of choice.

    Takes O(min(n, 500) · min(n, 1000) · (d + k)) time and one pass over all vectors.

    Args:
        question: Shape (d,).
        vectors: Of the documents that have one, shape (m, d).
        n_select: k, how many to choose, at most 256 of them.
        positions: Which of the documents those are; all if None.
        n_documents: n; m if None.
        selector: Chooses; `ContextSelector` if None.
        limit: What the choice is limited by; None for nothing else than `n_select`.
        text_of: The text of a row of `vectors`; without, none is told to repeat another.

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
    if not (is_told := vectors.any(axis=1)).all():
        raise InvalidInputError(
            f"`embeddings` must not be all zero, got such a vector at {int(is_told.argmin())}; was "
            f"an empty text embedded?"
        )
    cosines = cosine_similarities(question, vectors)
    nearest = np.argsort(-cosines, kind="stable")
    candidates = nearest[:MAX_CANDIDATES]
    chosen = np.empty(0, dtype=np.intp)
    if len(candidates) and n_select:
        limits: Mapping[str, Any] = {}
        if limit is not None:
            among = candidates.tolist()
            limits = limit(among if positions is None else [positions[row] for row in among])
        selection = select_texts(
            selector or ContextSelector(),
            question,
            vectors[candidates],
            min(n_select, MAX_CHOICES),
            text_of=lambda row: text_of(int(candidates[row])),
            **limits,
        )
        chosen = candidates[selection.positions]
    rest = nearest[~np.isin(nearest, chosen)]
    rows = np.concatenate([chosen, rest]).tolist()
    order = rows if positions is None else [positions[row] for row in rows]
    n = len(order) if n_documents is None else n_documents
    order = [*order, *sorted(set(range(n)) - set(order))]
    return Ranking(order=order, scores=[(n - i) / n for i in range(n)], n_chosen=len(chosen))


def ranked_texts(
    embedder: KeptEmbedder,
    query: str,
    texts: Sequence[str],
    n_select: int,
    *,
    selector: Selector | None = None,
    limit: Limit | None = None,
    go_on: Callable[[], object] = lambda: None,
) -> Ranking:
    """Return texts in order of choice; blank ones, which have no vector, are the last.

    Args:
        embedder: Embeds what is not known yet.
        query: What they are to tell about.
        texts: n texts.
        n_select: k, how many to choose, at most 256 of them.
        selector: As for `ranked`, like the next.
        limit: What the choice is limited by.
        go_on: Called before each batch of the embedder and before the choice; what it raises ends
            the work.

    Raises:
        InvalidInputError: If the query is blank.
    """
    if not query.strip():
        raise InvalidInputError("`query` is empty; ask something")
    positions = [i for i, text in enumerate(texts) if text.strip()]
    question = embedder.embed_query(query)
    vectors: FloatArray = np.empty((0, len(question)), dtype=np.float32)
    if positions:
        vectors = embedder.embed_documents([texts[i] for i in positions], go_on=go_on)
    go_on()
    return ranked(
        question,
        vectors,
        n_select,
        positions=positions,
        n_documents=len(texts),
        selector=selector,
        limit=limit,
        text_of=lambda row: texts[positions[row]],
    )
