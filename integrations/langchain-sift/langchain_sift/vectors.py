"""Vectors of documents that a store does not give: the caller's, or the model's."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from langchain_core.documents import Document
from langchain_core.vectorstores import VectorStore

from langchain_sift.embedder import FloatArray, LangChainEmbedder
from sift_core import Embedder
from sift_core.plugins import fill_gaps, look_up_missing, mark_blank
from sift_core.vector_cache import KeptVectors

VectorsById: TypeAlias = Callable[[list[str]], Mapping[str, Any]]
"""From a list of document ids to the vectors of those that have one, by id."""
Vectors: TypeAlias = Sequence[FloatArray | None]

logger = logging.getLogger("langchain_sift.documents")  # the name that users filter by
_warned: set[str] = set()  # stores of which a warning was logged
_kept = KeptVectors()  # of texts that had to be embedded, whichever object of ours asked for them


@dataclass(frozen=True)
class MissingVectors:
    """Looks up the vectors that a store does not give, or embeds the texts.

    Texts are embedded in one batch, once for each model. Their number is logged, as a warning the
    first time for a store.

    Args:
        embedder: Embeds the texts.
        store: Where the documents come from, for the log. None if no vectors are stored.
        given: Looks up vectors by id before texts are embedded. Default: all texts are embedded.
    """

    embedder: Embedder
    store: VectorStore | None
    given: VectorsById | None = None

    def fill(self, documents: Sequence[Document], vectors: Vectors) -> Sequence[FloatArray]:
        """Return the vectors of documents, without None in any place."""
        vectors, texts = self._looked_up(documents, vectors)
        made = _kept.embedded(self._model, texts, self.embedder.embed_documents)
        return fill_gaps(vectors, made)

    async def afill(self, documents: Sequence[Document], vectors: Vectors) -> Sequence[FloatArray]:
        """Return what `fill` returns, by the model's async method; `given` runs in a thread."""
        if not isinstance(self.embedder, LangChainEmbedder):  # it has no async method
            return await asyncio.to_thread(self.fill, documents, vectors)
        vectors, texts = await asyncio.to_thread(self._looked_up, documents, vectors)
        made = await _kept.aembedded(self._model, texts, self.embedder.aembed_documents)
        return fill_gaps(vectors, made)

    def _looked_up(
        self, documents: Sequence[Document], vectors: Vectors
    ) -> tuple[Vectors, list[str]]:
        """Return the vectors with those of `given`, and the texts that remain to be embedded."""
        vectors = look_up_missing(vectors, [document.id for document in documents], self.given)
        vectors = mark_blank(vectors, [document.page_content for document in documents])
        pairs = zip(documents, vectors, strict=True)
        texts = [document.page_content for document, vector in pairs if vector is None]
        if texts:
            logger.log(
                logging.DEBUG if self._name in _warned else logging.WARNING,
                "no stored vector for %d of %d documents of %s: embedding their texts, which are "
                "kept; tell where their vectors are by vectors=.... This is said once",
                len(texts),
                len(documents),
                self._name,
            )
            _warned.add(self._name)
        return vectors, texts

    @property
    def _model(self) -> object:
        """The object behind the embedder, which lives longer than one call."""
        embedder = self.embedder
        return embedder.embeddings if isinstance(embedder, LangChainEmbedder) else embedder

    @property
    def _name(self) -> str:
        """The kind of the store, and the name of its collection if it has one."""
        if self.store is None:
            return "no vector store"
        collection = getattr(self.store, "collection_name", None)
        return type(self.store).__name__ + (f" {collection!r}" if collection else "")
