"""All documents of a request in order: the choice first, the rest by similarity."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sift_core.checks import as_finite_array
from sift_core.choice import choose
from sift_core.errors import InvalidInputError
from sift_core.options import ChoiceOptions
from sift_core.selection.cosines import cosine_similarities
from sift_core.types import CandidatePool, FloatArray, Metadata, Query
from sift_core.vector_cache import KeptEmbedder

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


@dataclass(frozen=True, kw_only=True, eq=False)
class Documents:
    """The n documents of a request.

    Args:
        texts: n texts.
        metadata: n mappings.
    """

    texts: Sequence[str]
    metadata: Sequence[Metadata]

    @property
    def filled(self) -> list[int]:
        """Return the positions of the documents that have a text."""
        return [i for i, text in enumerate(self.texts) if text.strip()]


def ranked(
    documents: Documents,
    question: FloatArray,
    vectors: FloatArray,
    options: ChoiceOptions,
    *,
    positions: Sequence[int] | None = None,
) -> Ranking:
    """Return documents in order of choice.

    Takes O(min(n, 500) · min(n, 1000) · (d + k)) time and one pass over all vectors.

    Args:
        documents: n documents.
        question: Shape (d,).
        vectors: Of the documents that have one, shape (m, d).
        options: What the choice obeys; at most 256 documents are chosen.
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
    n, first, n_chosen = len(documents.texts), [], 0
    at = range(n) if positions is None else positions
    cosines = cosine_similarities(question, vectors)
    rows = np.argsort(-cosines, kind="stable")
    near = rows[:MAX_CANDIDATES]
    if len(near):
        pool = CandidatePool(
            document_ids=[str(at[row]) for row in near.tolist()],
            texts=[documents.texts[at[row]] for row in near.tolist()],
            embeddings=vectors[near],
            similarities=cosines[near],
            metadata=[documents.metadata[at[row]] for row in near.tolist()],
        )
        options = replace(options, n_select=min(options.n_select, MAX_CHOICES))
        chosen = choose(pool, Query(text="", embedding=question), options)
        first, n_chosen = [int(name) for name in chosen.ranking()], len(chosen)
    order = list(dict.fromkeys([*first, *(at[row] for row in rows.tolist()), *range(n)]))
    return Ranking(order=order, scores=[(n - i) / n for i in range(n)], n_chosen=n_chosen)


def ranked_texts(
    embedder: KeptEmbedder,
    query: str,
    documents: Documents,
    options: ChoiceOptions,
    *,
    go_on: Callable[[], object] = lambda: None,
) -> Ranking:
    """Return documents in order of choice; blank ones, which have no vector, are the last.

    Args:
        embedder: Embeds texts that it has no vector of.
        query: The question.
        documents: n documents.
        options: What the choice obeys; at most 256 documents are chosen.
        go_on: Called before each batch of the embedder and before the choice; what it raises ends
            the work.

    Raises:
        InvalidInputError: If the query is blank.
    """
    if not query.strip():
        raise InvalidInputError("`query` is empty; ask something")
    positions = documents.filled
    question = embedder.embed_query(query)
    vectors: FloatArray = np.empty((0, len(question)), dtype=np.float32)
    if positions:
        texts = [documents.texts[i] for i in positions]
        vectors = embedder.embed_documents(texts, go_on=go_on)
    go_on()
    return ranked(documents, question, vectors, options, positions=positions)
