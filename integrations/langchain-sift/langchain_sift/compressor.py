"""The compressor: SIFT over documents that some retriever has found already."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.callbacks import Callbacks
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.embeddings import Embeddings
from langchain_core.runnables import run_in_executor
from langchain_core.vectorstores import VectorStore
from pydantic import ConfigDict, Field, model_validator

from langchain_sift.documents import SCORE_KEY, ChoiceSettings
from langchain_sift.embedder import LangChainEmbedder, embedder_of
from langchain_sift.sources import apool_of, pool_of
from sift_core import InvalidInputError, Query


class SIFTCompressor(ChoiceSettings, BaseDocumentCompressor):
    """Keeps the documents that together say most about a question.

    For `ContextualCompressionRetriever` and `DocumentCompressorPipeline`, over any retriever
    that returns more documents than the prompt is to hold (some 50 to 200). The vectors of
    documents that came from `vectorstore` are read from it by id; the texts of the rest are
    embedded in one batch, with a logged warning that says how many.

    The documents come in order of choice, as copies, with the same `metadata["sift"]` as from
    `SIFTRetriever`; a "score" that one has put there is kept.

    Args:
        embeddings: The model that embeds the question and the rest, the same as behind the
            stored vectors. None for the model of `vectorstore`.
        vectorstore: Where documents come from: Chroma, Qdrant, FAISS, LangChain's in-memory store.
            None if no vectors are stored. One of both is needed.
        top_n: How many documents to keep at most, >= 1.
        selector, max_tokens, count_tokens, max_per_document: As in `SIFTRetriever`.
        document_key, newest, half_life_days, merge_neighbors, score: Likewise.
        vectors: From a list of document ids to a mapping of ids to vectors, for documents that are
            stored with their whole text and that `vectorstore` does not give vectors of.
        relevance_key: Where an earlier reranker has left its score in the metadata, higher
            is better. If all documents have a finite number there, these say what is relevant.
            None to disregard them.

    Raises:
        pydantic.ValidationError: At construction (a ValueError), if a setting cannot be used.
        sift_core.InvalidInputError: In a call, if question or embeddings cannot be used.
        sift_core.CandidateSourceError: In a call, if the store fails.
    """

    embeddings: Embeddings | None = None
    vectorstore: VectorStore | None = None
    top_n: int = Field(default=10, ge=1)
    relevance_key: str | None = SCORE_KEY

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    @model_validator(mode="after")
    def _check_settings(self) -> SIFTCompressor:
        self._embedder()
        return self

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> list[Document]:
        """Return copies of up to `top_n` of the documents, in order of choice.

        Args:
            documents: What was found, in any order; not modified. They need no ids.
            query: The question.
            callbacks: Not used: the framework's retriever reports the run.
        """
        if not documents:
            return []
        embedder = self._embedder()
        asked = Query(text=query, embedding=embedder.embed_query(query))
        pool = pool_of(
            asked, documents, self.vectorstore, embedder, self.relevance_key, self.vectors
        )
        return self._choose(asked, pool, self.top_n)

    async def acompress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> list[Document]:
        """Return what `compress_documents` returns.

        The model is called by its async methods; store and selection run in a thread.
        """
        if not documents:
            return []
        embedder = self._embedder()
        asked = Query(text=query, embedding=await embedder.aembed_query(query))
        pool = await apool_of(
            asked, documents, self.vectorstore, embedder, self.relevance_key, self.vectors
        )
        return await run_in_executor(None, self._choose, asked, pool, self.top_n)

    def _embedder(self) -> LangChainEmbedder:
        if self.embeddings is not None:
            return LangChainEmbedder(self.embeddings)
        if self.vectorstore is None:
            raise InvalidInputError(
                "one of `embeddings` and `vectorstore` must be given, got neither; pass the model "
                "that embeds question and documents, or the store that they come from"
            )
        return embedder_of(self.vectorstore)
