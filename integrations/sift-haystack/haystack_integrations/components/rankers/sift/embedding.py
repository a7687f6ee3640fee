"""Vectors for questions and documents that arrive without one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from haystack import Document

from sift_core import Embedder, InvalidInputError
from sift_core.plugins import fill_gaps, mark_blank

_logger = logging.getLogger(__name__)


class ModelEmbedder:
    """A `sift_core.Embedder` in the manners of Haystack's embedders of texts and of documents."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    def run(self, text: str = "", documents: Sequence[Document] | None = None) -> dict[str, Any]:
        """Return the embedding of a text, or copies of documents with theirs."""
        if documents is None:
            return {"embedding": self._embedder.embed_query(text).tolist()}
        rows = self._embedder.embed_documents([document.content or "" for document in documents])
        pairs = zip(documents, rows, strict=True)
        return {"documents": [replace(one, embedding=row.tolist()) for one, row in pairs]}


async def run_awaited(component: Any, **inputs: Any) -> dict[str, Any]:
    """Return what a component's `run` returns, by `run_async` if it has one, else in a thread."""
    if hasattr(component, "run_async"):
        found: dict[str, Any] = await component.run_async(**inputs)
        return found
    return await asyncio.to_thread(component.run, **inputs)


def texts_to_embed(
    query: str | None,
    queries: Sequence[str] | None,
    query_embedding: Sequence[float] | None,
    text_embedder: Any,
) -> list[str]:
    """Return the texts to search by: `queries`, else the question unless it is embedded already.

    Raises:
        InvalidInputError: If there is none, one is blank, or nothing embeds them.
    """
    if query_embedding is not None and not queries:
        return []
    texts: Sequence[str | None] = queries or [query]
    if isinstance(texts, str) or not all(isinstance(t, str) and t.strip() for t in texts):
        raise InvalidInputError(
            f"without `query_embedding` the question must be a text that is not blank, or "
            f"`queries` a list of such, got {query!r} and {queries!r}; connect a text embedder's "
            f"`embedding` to `query_embedding` or pass `query`"
        )
    if text_embedder is None:
        raise InvalidInputError(
            "nothing embeds the question: got no `query_embedding`, and the ranker has neither "
            "`text_embedder` nor `model`; connect a text embedder's `embedding` to "
            "`query_embedding`, or give the ranker one of them"
        )
    return [text for text in texts if text is not None]


def without_embedding(documents: Sequence[Document], document_embedder: Any) -> list[Document]:
    """Return copies of the documents that have no embedding, with a logged warning how many.

    Raises:
        InvalidInputError: If there are some and nothing embeds them.
    """
    pairs = zip(documents, _marked(documents), strict=True)
    missing = [replace(document) for document, vector in pairs if vector is None]
    if not missing:
        return []
    if document_embedder is None:
        raise InvalidInputError(
            f"{len(missing)} of {len(documents)} documents have no embedding, {missing[0].id!r} "
            f"for one; make the retriever with return_embedding=True (its own default goes before "
            f"the store's setting), or give the ranker a `document_embedder` or `model`"
        )
    _logger.warning(
        "no embedding on %d of %d documents: embedding their texts for this query; a retriever "
        "with return_embedding=True saves that",
        len(missing),
        len(documents),
    )
    return missing


def vectors_of(
    documents: Sequence[Document], embedded: Sequence[Document]
) -> Sequence[Sequence[float]]:
    """Return a vector a document; `embedded` are those without one, in their order.

    Raises:
        InvalidInputError: If an embedder has left some out.
    """
    vectors = _marked(documents)
    n_missing = sum(vector is None for vector in vectors)
    made = [document.embedding for document in embedded if document.embedding is not None]
    if len(made) != n_missing:
        raise InvalidInputError(
            f"`document_embedder` must return each document with an embedding: {n_missing} "
            f"document(s) gave {len(made)} embedding(s)"
        )
    return fill_gaps(vectors, made)


def _marked(documents: Sequence[Document]) -> Sequence[Any]:
    """Return the embeddings, with a mark for documents that have neither one nor a text."""
    vectors = [document.embedding for document in documents]
    return mark_blank(vectors, [document.content for document in documents])
