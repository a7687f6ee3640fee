"""The retriever: a question in, candidates from the store, one selection, documents out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
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

from langchain_sift.documents import choose_documents
from langchain_sift.embedder import LangChainEmbedder, embeddings_of
from langchain_sift.sources import VectorStoreSource
from sift_core import CandidateSource, InvalidInputError, OversamplingSource, Query, Selector

_SHARED = ("k", "fetch_k", "filter")  # settings that `search_kwargs` may hold as well


@dataclass(frozen=True, kw_only=True)
class _Call:
    """What one call asks for: how many to choose, of how many, and from where."""

    k: int
    fetch_k: int
    source: CandidateSource


class SIFTRetriever(BaseRetriever):
    """Retrieves the documents of a vector store that together say most about a question.

    Embeds the question once, fetches the `fetch_k` nearest documents with the vectors that
    the store already holds (Qdrant, FAISS, LangChain's in-memory store), and lets SIFT
    choose `k` of them. Other stores work too, at the price of embedding `fetch_k` texts for
    every question, which is logged as a warning.

    `invoke` and `ainvoke` take `k`, `fetch_k`, `filter` and search options for one call.
    The documents come in order of choice, as copies with their id, content and metadata,
    and with `metadata["sift"]`: "similarity" (cosine with the question), "score" (the store's
    own; None where it gives none), "relevance" (what the choice went by: a hybrid Qdrant
    store's fused score, else the cosine), "redundancy" (largest cosine with one chosen before;
    None for the first), "gain" (by how much the choice lowered σ² at the question) and
    "variance" (σ² after it).

    Args:
        vectorstore: Any LangChain vector store that knows its embedding model.
        k: How many documents to return at most, >= 1.
        fetch_k: How many candidates to choose from, >= k. Cost grows linearly with it.
        max_fetch_k: If set, up to so many candidates are fetched, >= `fetch_k`, where the
            first `fetch_k` are too much alike (`sift_core.OversamplingSource`). Not for
            stores whose texts are embedded again: each fetch would embed them all.
        selector: What chooses: any of `sift_core`, for instance
            `SIFTSelector(noise_variance=0.01)`, or one's own. None for the default for text
            in a prompt, `ContextSelector()`.
        filter: What the store takes as a filter. None for no restriction.
        search_kwargs: As in `store.as_retriever(search_kwargs=…)`: "k", "fetch_k" and
            "filter" count as the settings above, the rest are further arguments in the
            store's own words: "score_threshold", "search_params", "hybrid_fusion" for Qdrant.
        async_client: An `AsyncQdrantClient` of the same server for `ainvoke`. None to ask a
            Qdrant store in a thread.

    Raises:
        pydantic.ValidationError: At construction (a ValueError), if a setting cannot be used.
        sift_core.InvalidInputError: In a call, if a question, filter or argument cannot be
            used, or dimensions differ.
        sift_core.CandidateSourceError: In a call, if the store fails; its own exception is
            the cause.
    """

    vectorstore: VectorStore
    k: int = 10
    fetch_k: int = 200
    max_fetch_k: int | None = None
    selector: Selector | None = None
    filter: Any = None
    search_kwargs: dict[str, Any] = Field(default_factory=dict)
    async_client: Any = Field(default=None, exclude=True, repr=False)

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _move_search_kwargs(cls, values: Any) -> Any:
        """Move what `search_kwargs` shares with the settings into these.

        A setting that is given at its default counts as left out: `configurable_fields`
        constructs anew with every field.
        """
        search_kwargs = values.get("search_kwargs") if isinstance(values, dict) else None
        if not isinstance(search_kwargs, Mapping):
            return values
        shared = {name: search_kwargs[name] for name in _SHARED if name in search_kwargs}
        for name, value in shared.items():
            default = cls.model_fields[name].default
            given = values.get(name, default)
            if given is not value and given != default and given != value:
                raise InvalidInputError(
                    f"`{name}` is {given!r} and {value!r} in `search_kwargs`; pass it once"
                )
        rest = {name: value for name, value in search_kwargs.items() if name not in shared}
        return {**values, **shared, "search_kwargs": rest}

    @model_validator(mode="after")
    def _check_settings(self) -> SIFTRetriever:
        self._call({})
        self._embedder()
        if self.tags is None:  # as `as_retriever` sets them
            classes = (type(self.vectorstore), type(self.vectorstore.embeddings))
            self.tags = [each.__name__ for each in classes]
        return self

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        """Return the documents chosen for `query`."""
        call = self._call(kwargs)
        asked = Query(text=query, embedding=self._embedder().embed_query(query))
        pool = call.source.fetch(asked, call.fetch_k)
        return choose_documents(self.selector, asked, pool, call.k)

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        """Return the documents chosen for `query`; what has no async form runs in a thread."""
        call = self._call(kwargs)
        asked = Query(text=query, embedding=await self._embedder().aembed_query(query))
        pool = await call.source.afetch(asked, call.fetch_k)
        return await run_in_executor(None, choose_documents, self.selector, asked, pool, call.k)

    def _get_ls_params(self, **kwargs: Any) -> LangSmithRetrieverParams:
        """Return what LangSmith shows beside a run, as the store's own retriever does."""
        parameters = super()._get_ls_params(**kwargs)
        parameters["ls_vector_store_provider"] = type(self.vectorstore).__name__
        parameters["ls_embedding_provider"] = type(self.vectorstore.embeddings).__name__
        return parameters

    def _call(self, overrides: Mapping[str, Any]) -> _Call:
        """Return what a call with these arguments asks for.

        Raises:
            InvalidInputError: If a number is out of its range, or an option cannot be used.
        """
        own = {name: getattr(self, name) for name in (*_SHARED, "max_fetch_k")}
        options = {**own, **self.search_kwargs, **overrides}
        options.pop("verbose", None)  # meant for the callbacks; `invoke` does not take it out
        k, fetch_k = (_count(name, options.pop(name)) for name in ("k", "fetch_k"))
        if fetch_k < k:
            raise InvalidInputError(
                f"`fetch_k` must be >= `k`, got fetch_k={fetch_k} and k={k}; raise `fetch_k`, "
                f"the number of candidates to choose from"
            )
        most = options.pop("max_fetch_k")
        source = VectorStoreSource(self.vectorstore, options, async_client=self.async_client)
        if most is None:
            return _Call(k=k, fetch_k=fetch_k, source=source)
        if _count("max_fetch_k", most) < fetch_k:
            raise InvalidInputError(
                f"`max_fetch_k` must be >= `fetch_k`, got max_fetch_k={most} and "
                f"fetch_k={fetch_k}; it limits the first fetch too"
            )
        if not source.gives_vectors:
            raise InvalidInputError(
                f"`max_fetch_k` is for stores that give their vectors back, got "
                f"{type(self.vectorstore).__name__}, whose texts are embedded again for every "
                f"fetch; leave it out and raise `fetch_k`"
            )
        wide = OversamplingSource(source, n_select=k, max_candidates=int(most))
        return _Call(k=k, fetch_k=fetch_k, source=wide)

    def _embedder(self) -> LangChainEmbedder:
        return LangChainEmbedder(embeddings_of(self.vectorstore))


def _count(name: str, value: object) -> int:
    if not isinstance(value, Integral) or value < 1:
        raise InvalidInputError(f"`{name}` must be an integer >= 1, got {value!r}")
    return int(value)
