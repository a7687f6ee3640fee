"""The retriever: translate in, one selection by the core, translate out."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any, Literal

import numpy as np
from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
)
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import run_in_executor
from langchain_core.vectorstores import VectorStore
from pydantic import ConfigDict, Field, model_validator

from langchain_sift.candidates import Candidates, Search, chosen_documents
from langchain_sift.embedded_candidates import aembed_candidates, embed_candidates
from langchain_sift.stored_candidates import stored_reader
from sift_core import InvalidInputError, Query, Selector, selector_from_settings


class SIFTRetriever(BaseRetriever):
    """Retrieves the documents of a vector store that together say most about a question.

    Embeds the question once, fetches the `fetch_k` nearest documents with the vectors that
    the store already holds (Qdrant, FAISS, LangChain's in-memory store), and lets SIFT
    choose `k` of them. Other stores work too, at the price of embedding `fetch_k` texts for
    every question, which is logged as a warning.

    `invoke` and `ainvoke` take `k`, `fetch_k`, `filter` and search options for one call.
    The documents come in order of choice, as copies with their id, content and metadata,
    and with `metadata["sift"]`: "similarity" (cosine with the question), "gain",
    "variance_before" and "variance_after" (σ² at the question before and after the choice).

    Args:
        vectorstore: Any LangChain vector store that knows its embedding model.
        k: How many documents to return at most, >= 1.
        fetch_k: How many candidates to choose from, >= k. Cost grows linearly with it.
        kernel: "auto" for the default for text in a prompt, which reads its scales from the
            candidates (`sift_core.ContextSelector`); "rbf" or the paper's "linear" for SIFT
            with the question alone as its target.
        length_scale: Distance over which texts inform about each other, for "rbf" alone.
            None for the core's default.
        noise_variance: λ > 0. Larger values choose closer to the question and allow more
            overlap. None for 0.2 with "auto", 0.1 with "rbf" and the paper's
            0.01 with "linear".
        alpha: Adaptive stop: larger values return fewer documents, perhaps none. None
            never stops before `k`.
        filter: What the store takes as a filter. None for no restriction.
        search_kwargs: Further arguments in the store's own words, for instance Qdrant's
            `search_params`.

    Raises:
        pydantic.ValidationError: At construction (a ValueError), if a setting cannot be used.
        sift_core.InvalidInputError: In a call, if an argument or an embedding cannot be used.
        sift_core.CandidateSourceError: In a call, if the store fails; its own exception is
            the cause.
    """

    vectorstore: VectorStore
    k: int = 10
    fetch_k: int = 200
    kernel: Literal["auto", "rbf", "linear"] = "auto"
    length_scale: float | None = None
    noise_variance: float | None = None
    alpha: float | None = None
    filter: Any = None
    search_kwargs: dict[str, Any] = Field(default_factory=dict)

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    @model_validator(mode="after")
    def _check_settings(self) -> SIFTRetriever:
        clashes = sorted({"k", "fetch_k", "filter"} & self.search_kwargs.keys())
        if clashes:
            raise InvalidInputError(
                f"`search_kwargs` must not hold {clashes}; pass them to SIFTRetriever itself"
            )
        self._settings({})
        self._selector()
        self._embeddings()
        return self

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        """Return the documents chosen for `query`."""
        settings = self._settings(kwargs)
        search = _search(query, self._embeddings().embed_query(query), settings)
        read = stored_reader(self.vectorstore)
        if read is None:
            candidates = embed_candidates(self.vectorstore, self._embeddings(), search)
        else:
            candidates = read(self.vectorstore, search)
        return self._choose(candidates, search.query, settings["k"])

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        """Return the documents chosen for `query`; what has no async form runs in a thread."""
        settings = self._settings(kwargs)
        search = _search(query, await self._embeddings().aembed_query(query), settings)
        read = stored_reader(self.vectorstore)
        if read is None:
            candidates = await aembed_candidates(self.vectorstore, self._embeddings(), search)
        else:
            candidates = await run_in_executor(None, read, self.vectorstore, search)
        return await run_in_executor(None, self._choose, candidates, search.query, settings["k"])

    def _settings(self, overrides: Mapping[str, Any]) -> dict[str, Any]:
        """Return what one call asks of the store and for how many documents, checked."""
        own = {"k": self.k, "fetch_k": self.fetch_k, "filter": self.filter}
        settings = {**own, **self.search_kwargs, **overrides}
        settings.pop("verbose", None)  # meant for the callbacks; `invoke` does not take it out
        for name in ("k", "fetch_k"):
            if not isinstance(settings[name], Integral) or settings[name] < 1:
                raise InvalidInputError(f"`{name}` must be an integer >= 1, got {settings[name]!r}")
        if settings["fetch_k"] < settings["k"]:
            raise InvalidInputError(
                f"`fetch_k` must be >= `k`, got fetch_k={settings['fetch_k']} and "
                f"k={settings['k']}; raise `fetch_k`, the number of candidates to choose from"
            )
        return settings

    def _selector(self) -> Selector:
        return selector_from_settings(
            kernel=self.kernel,
            length_scale=self.length_scale,
            noise_variance=self.noise_variance,
            alpha=self.alpha,
        )

    def _embeddings(self) -> Embeddings:
        embeddings = self.vectorstore.embeddings
        if embeddings is None:
            raise InvalidInputError(
                f"`vectorstore` must know its embedding model, but "
                f"{type(self.vectorstore).__name__}.embeddings is None; construct the store "
                f"with an `Embeddings` object"
            )
        return embeddings

    def _choose(self, candidates: Candidates, query: Query, k: int) -> list[Document]:
        if not candidates.documents:
            return []
        selection = self._selector().select(query.embedding, candidates.embeddings, k)
        return chosen_documents(candidates, query, selection)


def _search(query: str, embedding: list[float], settings: Mapping[str, Any]) -> Search:
    return Search(
        query=Query(text=query, embedding=np.asarray(embedding)),
        n_candidates=int(settings["fetch_k"]),
        filter=settings["filter"],
        options={
            name: value
            for name, value in settings.items()
            if name not in ("k", "fetch_k", "filter")
        },
    )
