"""The retriever: a question in, candidates from the store, one selection, documents out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

from langchain_sift.documents import ChoiceSettings
from langchain_sift.embedder import embedder_of
from langchain_sift.sources import VectorStoreSource
from sift_core import (
    CandidateSource,
    InvalidInputError,
    OversamplingSource,
    Query,
    afetch_for_all,
    fetch_for_all,
)

_SHARED = ("k", "fetch_k", "filter")  # settings that `search_kwargs` may hold as well


class SIFTRetriever(ChoiceSettings, BaseRetriever):
    """Retrieves the documents of a vector store that together say most about a question.

    Embeds the question once, fetches the `fetch_k` nearest documents with the vectors that
    the store already holds (Chroma, Qdrant, FAISS, LangChain's in-memory store), and lets SIFT
    choose `k` of them. Other stores work too, at the price of embedding `fetch_k` texts for
    every question, which is logged as a warning.

    `invoke` and `ainvoke` take `k`, `fetch_k`, `filter` and search options for one call, and
    `queries`, a list of texts to look for in place of the question: its parts or rewrites. Each has
    `fetch_k` candidates, and its turns in the choice (`sift_core.ContextSelector`).
    The documents come in order of choice, as copies with their id, content and metadata, and
    with "similarity", "score", "relevance", "redundancy", "gain" and "variance" under
    `metadata["sift"]` (`sift_core.pick_metadata`).

    Args:
        vectorstore: Any LangChain vector store that knows its embedding model.
        k: How many documents to return at most, >= 1.
        fetch_k: How many candidates to choose from, >= k. Cost grows linearly with it.
        max_fetch_k: If set, up to so many candidates are fetched, >= `fetch_k`, where the
            first `fetch_k` are too much alike (`sift_core.OversamplingSource`). Costly where
            texts are embedded again: each fetch embeds them all.
        selector: What chooses: any of `sift_core`, for instance
            `SIFTSelector(noise_variance=0.01)`, or one's own. None for the default for text
            in a prompt, `ContextSelector()`.
        max_tokens: How many tokens the documents may have together; of those that still fit
            the one that tells most per token is next. None for no limit.
        count_tokens: Counts those of a text. None for LangChain's own estimate,
            `count_tokens_approximately`, four characters a token.
        max_per_document: How many chunks of one file or page at most. None for no limit.
        document_key: Where the metadata names it; a chunk without one is a document of its own.
        newest: Where the metadata has a date (ISO 8601 text, datetime, seconds since 1970): of
            near-duplicates the newest is chosen. A document without one is the oldest, which
            a `sift_core.UndatedWarning` counts. None for the most relevant.
        half_life_days: With `newest`: a document so many days older than the newest candidate
            counts half as much. None: age counts among near-duplicates alone.
        merge_neighbors: Whether chosen documents of one file that touch, or have one other
            candidate between them which fits, become one with the text of all, whose ids are in
            `metadata["sift"]["chunks"]`. Needs a splitter with `add_start_index=True`.
        score: "similarity" or "variance" to have the document's cosine with the question, or the
            variance at it before the choice, under `metadata["relevance_score"]`, where LangChain's
            rerankers put theirs. It differs from question to question, so that results which
            `MultiQueryRetriever` joins by equality come out several times. None for neither.
        vectors: From a list of document ids to a mapping of ids to vectors
            (`sift_core.vectors_by_id`), for a store that does not give its vectors. None to embed
            texts.
        filter: What the store takes as a filter. None for no restriction.
        search_kwargs: As in `store.as_retriever(search_kwargs=…)`: "k", "fetch_k" and
            "filter" go before the settings above, the rest are further arguments in the
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
    filter: Any = None
    search_kwargs: dict[str, Any] = Field(default_factory=dict)
    async_client: Any = Field(default=None, exclude=True, repr=False)

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _move_search_kwargs(cls, values: Any) -> Any:
        """Move what `search_kwargs` shares with the settings into these."""
        search_kwargs = values.get("search_kwargs") if isinstance(values, dict) else None
        if not isinstance(search_kwargs, Mapping):
            return values
        shared = {name: search_kwargs[name] for name in _SHARED if name in search_kwargs}
        rest = {name: value for name, value in search_kwargs.items() if name not in shared}
        return {**values, **shared, "search_kwargs": rest}

    @model_validator(mode="after")
    def _check_settings(self) -> SIFTRetriever:
        self._call({})
        embedder_of(self.vectorstore)
        if self.tags is None:  # as `as_retriever` sets them
            classes = (type(self.vectorstore), type(self.vectorstore.embeddings))
            self.tags = [each.__name__ for each in classes]
        return self

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        """Return the documents chosen for `query`."""
        texts = _texts(kwargs.pop("queries", None), query)
        k, fetch_k, source = self._call(kwargs)
        embedder = embedder_of(self.vectorstore)
        asked = Query.of_each(texts, [embedder.embed_query(text) for text in texts])
        return self._choose(asked, fetch_for_all(source, asked, fetch_k), k)

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        """Return the documents chosen for `query`; what has no async form runs in a thread."""
        texts = _texts(kwargs.pop("queries", None), query)
        k, fetch_k, source = self._call(kwargs)
        embedder = embedder_of(self.vectorstore)
        asked = Query.of_each(texts, [await embedder.aembed_query(text) for text in texts])
        pool = await afetch_for_all(source, asked, fetch_k)
        return await run_in_executor(None, self._choose, asked, pool, k)

    def _get_ls_params(self, **kwargs: Any) -> LangSmithRetrieverParams:
        """Return what LangSmith shows beside a run, as the store's own retriever does."""
        parameters = super()._get_ls_params(**kwargs)
        parameters["ls_vector_store_provider"] = type(self.vectorstore).__name__
        parameters["ls_embedding_provider"] = type(self.vectorstore.embeddings).__name__
        return parameters

    def _call(self, overrides: Mapping[str, Any]) -> tuple[int, int, CandidateSource]:
        """Return how many documents a call chooses, of how many, and where these come from.

        Raises:
            InvalidInputError: If a number is out of its range, or an option cannot be used.
        """
        own = {name: getattr(self, name) for name in (*_SHARED, "max_fetch_k")}
        options = {**own, **self.search_kwargs, **overrides}
        options.pop("verbose", None)  # meant for the callbacks; `invoke` does not take it out
        k, fetch_k = (_count(name, options.pop(name)) for name in ("k", "fetch_k"))
        most = options.pop("max_fetch_k")
        widest = fetch_k if most is None else _count("max_fetch_k", most)
        if not k <= fetch_k <= widest:
            raise InvalidInputError(
                f"`k`, `fetch_k` and `max_fetch_k` must not fall, got {k}, {fetch_k} and {most}: "
                f"`k` are chosen of `fetch_k` or more candidates"
            )
        source: CandidateSource = VectorStoreSource(
            self.vectorstore, options, async_client=self.async_client, vectors=self.vectors
        )
        if most is not None:
            source = OversamplingSource(
                source,
                n_select=k,
                max_candidates=widest,
                prefer=self._newness,
            )
        return k, fetch_k, source


def _texts(queries: Sequence[str] | None, question: str) -> Sequence[str]:
    """Return what is looked for: the question itself unless something else is told."""
    texts = queries or [question]
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise InvalidInputError(f"`queries` must be a list of texts, got {queries!r}")
    return texts


def _count(name: str, value: object) -> int:
    if not isinstance(value, Integral) or value < 1:
        raise InvalidInputError(f"`{name}` must be an integer >= 1, got {value!r}")
    return int(value)
