"""The compressor: SIFT over documents that a retriever has found already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from langchain_core.callbacks import Callbacks
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import VectorStore
from pydantic import ConfigDict, Field, model_validator

from langchain_sift.documents import SCORE_KEY
from langchain_sift.embedder import LangChainEmbedder, embedder_of
from langchain_sift.options import LangChainOptions
from langchain_sift.sources import FoundDocuments
from langchain_sift.vectors import VectorFiller
from sift_core import InvalidInputError


class SIFTCompressor(LangChainOptions, BaseDocumentCompressor):
    """Keeps the documents that together say most about a question.

    For `ContextualCompressionRetriever` and `DocumentCompressorPipeline`, over any retriever
    that returns more documents than the prompt should have (some 50 to 200). The vectors of
    documents that came from `vectorstore` are read from it by id. The texts of the others are
    embedded in one batch, and a logged warning has their number.

    The documents come in order of choice, as copies, with the same `metadata["sift"]` as from
    `SIFTRetriever`. A "score" that `SIFTRetriever` has put there is kept.

    Args:
        embeddings: The model that embeds the question and texts, the same as behind the stored
            vectors. Default: the model of `vectorstore`. One of both is needed.
        vectorstore: The store of the documents: Chroma, Qdrant, FAISS, LangChain's in-memory store.
            Default: no vectors are stored.
        top_n: Keep at most this many documents, >= 1.
        score: As in `SIFTRetriever`.
        vectors: From a list of document ids to a mapping of ids to vectors, for documents that are
            stored with their whole text and whose vectors `vectorstore` does not give.
        relevance_key: Metadata key of an earlier reranker's score, higher is better. If all
            documents have a finite number there, it is their relevance. None disregards them.

    The others are `sift_core.ChoiceOptions`, with the defaults of `SIFTRetriever`.

    Raises:
        pydantic.ValidationError: At construction (a ValueError), if a setting cannot be used.
        sift_core.InvalidInputError: In a call, if question or embeddings cannot be used.
        sift_core.CandidateSourceError: In a call, if the store fails.

    Example:
        >>> compressor = SIFTCompressor(vectorstore=vectorstore, top_n=2)
        >>> found = vectorstore.similarity_search(question, k=4)
        >>> [one.id for one in compressor.compress_documents(found, question)]
        ['prices', 'copy']
    """

    embeddings: Embeddings | None = None
    vectorstore: VectorStore | None = None
    top_n: int = Field(default=10, ge=1)
    relevance_key: str | None = SCORE_KEY

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    @model_validator(mode="after")
    def _check_settings(self) -> SIFTCompressor:
        self._embedder()
        self._options()
        return self

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> list[Document]:
        """Return copies of up to `top_n` of the documents, in order of choice.

        Args:
            documents: The candidates, in any order; not modified. They need no ids.
            query: The question.
            callbacks: Not used: the framework's retriever reports the run.
        """
        return self._chosen(*self._asked(documents, query)) if documents else []

    async def acompress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> list[Document]:
        """Return what `compress_documents` returns.

        The model is called by its async methods; store and choice run in a thread.
        """
        return await self._achosen(*self._asked(documents, query)) if documents else []

    def _asked(self, documents: Sequence[Document], question: str) -> tuple[Any, ...]:
        embedder = self._embedder()
        filler = VectorFiller(embedder, self.vectorstore, self.vectors)
        found = FoundDocuments(documents, filler, self.relevance_key)
        return found, embedder, [question], self._options(n_select=self.top_n)

    def _embedder(self) -> LangChainEmbedder:
        if self.embeddings is not None:
            return LangChainEmbedder(self.embeddings)
        if self.vectorstore is None:
            raise InvalidInputError(
                "one of `embeddings` and `vectorstore` must be given, got neither; pass the model "
                "that embeds question and documents, or the store that they come from"
            )
        return embedder_of(self.vectorstore)
