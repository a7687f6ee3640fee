"""The retriever: translate in, one selection by the core, translate out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
)
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever, LangSmithRetrieverParams
from langchain_core.runnables import run_in_executor
from langchain_core.vectorstores import VectorStore
from pydantic import ConfigDict, Field, model_validator

from langchain_sift.choosing import SelectorSettings
from langchain_sift.embedder import LangChainEmbedder, embeddings_of
from langchain_sift.settings import SHARED, CallSettings, call_settings, moved_search_kwargs
from langchain_sift.sources import VectorStoreSource
from sift_core import InvalidInputError, Query, afetch_distinct, fetch_distinct


class SIFTRetriever(SelectorSettings, BaseRetriever):
    """Retrieves the documents of a vector store that together say most about a question.

    Embeds the question once, fetches the `fetch_k` nearest documents with the vectors that
    the store already holds (Qdrant, FAISS, LangChain's in-memory store), and lets SIFT
    choose `k` of them. Other stores work too, at the price of embedding `fetch_k` texts for
    every question, which is logged as a warning.

    `invoke` and `ainvoke` take `k`, `fetch_k`, `filter` and search options for one call.
    The documents come in order of choice, as copies with their id, content and metadata,
    and with `metadata["sift"]`: "similarity" (cosine with the question), "gain",
    "variance_before" and "variance_after" (σ² at the question before and after the choice),
    "redundancy" (largest cosine with one chosen before; None for the first), and "score", the
    store's own, where it gives one. A hybrid Qdrant store's fused scores say what is relevant
    (kernel "auto" only).

    Args:
        vectorstore: Any LangChain vector store that knows its embedding model.
        k: How many documents to return at most, >= 1.
        fetch_k: How many candidates to choose from, >= k. Cost grows linearly with it.
        max_fetch_k: If set, up to so many candidates are fetched, >= `fetch_k`, where the
            first `fetch_k` are too much alike (`sift_core.OversamplingSource`). Not for
            stores whose texts are embedded again: each fetch would embed them all.
        kernel: "auto" for the default for text in a prompt, which reads its scales from the
            candidates (`sift_core.ContextSelector`); "rbf" or the paper's "linear" for SIFT
            with the question alone as its target.
        length_scale: Distance over which texts inform about each other, for "rbf" alone.
            None for the core's default.
        noise_variance: λ > 0. Larger values choose closer to the question and allow more
            overlap. None for 0.2 with "auto", 0.1 with "rbf" and the paper's 0.01 with
            "linear".
        alpha: Adaptive stop: larger values return fewer documents, perhaps none. None
            never stops before `k`.
        filter: What the store takes as a filter. None for no restriction.
        search_kwargs: As in `store.as_retriever(search_kwargs=…)`: "k", "fetch_k" and
            "filter" count as the settings above, the rest are further arguments in the
            store's own words, for instance Qdrant's `search_params`.
        async_client: An `AsyncQdrantClient` of the same server, used by `ainvoke` instead of
            a thread, for a `QdrantVectorStore`.

    Raises:
        pydantic.ValidationError: At construction (a ValueError), if a setting cannot be used.
        sift_core.InvalidInputError: In a call, if an argument or an embedding cannot be used.
        sift_core.CandidateSourceError: In a call, if the store fails; its own exception is
            the cause.
    """

    vectorstore: VectorStore
    k: int = 10
    fetch_k: int = 200
    max_fetch_k: int | None = None
    filter: Any = None
    search_kwargs: dict[str, Any] = Field(default_factory=dict)
    async_client: Any = Field(default=None, exclude=True, repr=False)

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _move_search_kwargs(cls, values: Any) -> Any:
        defaults = {name: cls.model_fields[name].default for name in SHARED}
        return moved_search_kwargs(values, defaults)

    @model_validator(mode="after")
    def _check_settings(self) -> SIFTRetriever:
        self._source(self._settings({}))
        self._selector()
        self._embedder()
        if self.tags is None:  # as `as_retriever` sets them
            classes = (type(self.vectorstore), type(self.vectorstore.embeddings))
            self.tags = [each.__name__ for each in classes]
        return self

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        """Return the documents chosen for `query`."""
        settings = self._settings(kwargs)
        source = self._source(settings)
        asked = Query(text=query, embedding=self._embedder().embed_query(query))
        if settings.max_fetch_k is None:
            pool = source.fetch(asked, settings.fetch_k, filter=settings.filter)
        else:
            pool = fetch_distinct(source, asked, **settings.oversampling())
        return self._choose(asked, pool, settings.k)

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        """Return the documents chosen for `query`; what has no async form runs in a thread."""
        settings = self._settings(kwargs)
        source = self._source(settings)
        asked = Query(text=query, embedding=await self._embedder().aembed_query(query))
        if settings.max_fetch_k is None:
            pool = await source.afetch(asked, settings.fetch_k, filter=settings.filter)
        else:
            pool = await afetch_distinct(source, asked, **settings.oversampling())
        return await run_in_executor(None, self._choose, asked, pool, settings.k)

    def _get_ls_params(self, **kwargs: Any) -> LangSmithRetrieverParams:
        """Return what LangSmith shows beside a run, as the store's own retriever does."""
        parameters = super()._get_ls_params(**kwargs)
        parameters["ls_vector_store_provider"] = type(self.vectorstore).__name__
        parameters["ls_embedding_provider"] = type(self.vectorstore.embeddings).__name__
        return parameters

    def _settings(self, overrides: Mapping[str, Any]) -> CallSettings:
        own = {name: getattr(self, name) for name in ("k", "fetch_k", "max_fetch_k", "filter")}
        return call_settings({**own, **self.search_kwargs, **overrides})

    def _source(self, settings: CallSettings) -> VectorStoreSource:
        source = VectorStoreSource(
            self.vectorstore, settings.options, async_client=self.async_client
        )
        if settings.max_fetch_k is not None and not source.gives_vectors:
            raise InvalidInputError(
                f"`max_fetch_k` is for stores that give their vectors back, got "
                f"{type(self.vectorstore).__name__}, whose texts are embedded again for every "
                f"fetch; leave it out and raise `fetch_k`"
            )
        return source

    def _embedder(self) -> LangChainEmbedder:
        return LangChainEmbedder(embeddings_of(self.vectorstore))
