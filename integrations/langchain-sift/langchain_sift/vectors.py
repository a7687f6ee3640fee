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
from sift_core.plugins import MissingVectors

VectorsById: TypeAlias = Callable[[list[str]], Mapping[str, Any]]
"""From a list of document ids to the vectors of those that have one, by id."""
Vectors: TypeAlias = Sequence[FloatArray | None]

missing_vectors: MissingVectors = MissingVectors(
    logging.getLogger("langchain_sift.documents"),  # the name that users filter by
    "no stored vector for %d of %d documents %s: their texts are embedded, and these vectors kept; "
    "name their store by `vectorstore`, or look them up by `vectors`. This is said once",
)


@dataclass(frozen=True)
class VectorFiller:
    """Looks up the vectors that a store does not give, or embeds the texts.

    Args:
        embedder: Embeds the texts.
        store: Where the documents come from, for the log. None if no vectors are stored.
        given: Looks up vectors by id before texts are embedded. Default: all texts are embedded.
    """

    embedder: Embedder
    store: VectorStore | None
    given: VectorsById | None = None

    async def fill(
        self, documents: Sequence[Document], vectors: Vectors, *, is_awaited: bool
    ) -> Sequence[FloatArray]:
        """Return the vectors of documents, without None in any place."""
        return await missing_vectors.completed(
            vectors,
            [document.id for document in documents],
            lambda row: documents[row].page_content,
            self._model,
            place=self._place,
            look_up=self.given,
            is_awaited=is_awaited,
        )

    def _model(self) -> Any:
        """Return the object behind the embedder, which outlives a call, and how it embeds."""
        own = self.embedder
        if isinstance(own, LangChainEmbedder):
            return own.embeddings, own.embed_documents, own.aembed_documents
        embed = own.embed_documents
        return own, embed, lambda texts: asyncio.to_thread(embed, texts)

    @property
    def _place(self) -> str:
        """The kind of the store, and the name of its collection if it has one."""
        if self.store is None:
            return "without a vector store"
        collection = getattr(self.store, "collection_name", None)
        return f"of {type(self.store).__name__}" + (f" {collection!r}" if collection else "")
