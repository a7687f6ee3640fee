"""The retriever: a question in, candidates from the store, one choice, documents out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any, ClassVar

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
)
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever, LangSmithRetrieverParams
from langchain_core.vectorstores import VectorStore
from pydantic import ConfigDict, Field, model_validator

from langchain_sift.embedder import LangChainEmbedder, embedder_of
from langchain_sift.options import LangChainOptions
from langchain_sift.sources import VectorStoreSource
from sift_core import CandidateSource, ChoiceOptions, InvalidInputError, OversamplingSource
from sift_core.option_fields import ChoiceFields
from sift_core.options import SAME_COUNTS, unknown_option

# Fields that `search_kwargs` and calls may have as well.
_PER_CALL = ("k", "fetch_k", "max_fetch_k", "filter", *ChoiceFields.model_fields)
_FOREIGN = {name for same in SAME_COUNTS for name in same} - {*_PER_CALL}  # of other classes


class SIFTRetriever(LangChainOptions, BaseRetriever):
    """Retrieves the documents of a vector store that together say most about a question.

    Embeds the question once, fetches the `fetch_k` nearest documents with the vectors that
    the store already holds (Chroma, Qdrant, FAISS, LangChain's in-memory store), and lets SIFT
    choose `k` of them. Other stores work too, but `fetch_k` texts are embedded for every question,
    and a warning is logged.

    `invoke` and `ainvoke` take `k`, `fetch_k`, `max_fetch_k`, `filter`, every option and search
    arguments of the store for one call. They also take `queries`, a list of texts to search by
    instead of the question: its parts or rewrites. Each has `fetch_k` candidates and its turns in
    the choice (`sift_core.ContextSelector`).
    The documents come in order of choice, as copies with their id, content and metadata.
    `metadata["sift"]` has the fields of `sift_core.Pick`: "similarity", "score", "relevance",
    "redundancy", "gain", "variance", and the ids of joined documents under "chunks". Words that led
    to a document are under "shares", "reached_from" and "reached_by".

    Args:
        vectorstore: Any LangChain vector store with its embedding model.
        k: Return at most this many documents, >= 1.
        fetch_k: Choose from this many candidates, >= `k`. Cost grows linearly with it.
        max_fetch_k: Fetch up to this many candidates, >= `fetch_k`, if the first `fetch_k` are too
            much alike (`sift_core.OversamplingSource`). Default: one fetch. More are costly if
            texts are embedded again: each fetch embeds them all.
        score: "similarity" or "variance" puts the document's cosine with the question, or the
            variance at it before the choice, under `metadata["relevance_score"]`, where LangChain's
            rerankers put theirs. It differs from question to question, so that results which
            `MultiQueryRetriever` joins by equality come out several times. Default: neither.
        vectors: From a list of document ids to a mapping of ids to vectors
            (`sift_core.vectors_by_id`), for a store that does not give its vectors. Default: texts
            are embedded.
        filter: The store's own kind of filter. Default: no restriction.
        search_kwargs: As in `store.as_retriever(search_kwargs=…)`. Fields of this class go before
            the settings above. The others are arguments in the store's own words:
            "score_threshold", "search_params", "hybrid_fusion" for Qdrant.
        async_client: An `AsyncQdrantClient` of the same server for `ainvoke`. Default: a Qdrant
            store is searched in a thread.

    The others are `sift_core.ChoiceOptions`. By default words count beside vectors, `document_key`
    is "source". `hops` does nothing.

    Raises:
        pydantic.ValidationError: At construction (a ValueError), if a setting cannot be used.
        sift_core.InvalidInputError: In a call, if a question, filter or argument cannot be
            used, or dimensions differ.
        sift_core.CandidateSourceError: In a call, if the store fails; its own exception is
            the cause.

    Example:
        >>> retriever = SIFTRetriever(vectorstore=vectorstore, k=2)
        >>> [document.id for document in retriever.invoke("When does the ferry sail?")]
        ['timetable', 'prices']
    """

    vectorstore: VectorStore
    k: int = 10
    fetch_k: int = 200
    max_fetch_k: int | None = None
    filter: Any = None
    search_kwargs: dict[str, Any] = Field(default_factory=dict)
    async_client: Any = Field(default=None, exclude=True, repr=False)

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _move_search_kwargs(cls, values: Any) -> Any:
        """Move fields that are given in `search_kwargs` to their place."""
        search_kwargs = values.get("search_kwargs") if isinstance(values, dict) else None
        if not isinstance(search_kwargs, Mapping):
            return values
        shared = {name: search_kwargs[name] for name in _PER_CALL if name in search_kwargs}
        rest = {name: value for name, value in search_kwargs.items() if name not in shared}
        return {**values, **shared, "search_kwargs": rest}

    @model_validator(mode="after")
    def _check_settings(self) -> SIFTRetriever:
        self._call({}, "")
        if self.tags is None:  # as `as_retriever` sets them
            classes = (type(self.vectorstore), type(self.vectorstore.embeddings))
            self.tags = [each.__name__ for each in classes]
        return self

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        """Return the documents chosen for `query`."""
        return self._chosen(*self._call(kwargs, query))

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        """Return the documents chosen for `query`; steps without an async form run in a thread."""
        return await self._achosen(*self._call(kwargs, query))

    def _get_ls_params(self, **kwargs: Any) -> LangSmithRetrieverParams:
        """Return what LangSmith shows beside a run, as the store's own retriever does."""
        parameters = super()._get_ls_params(**kwargs)
        parameters["ls_vector_store_provider"] = type(self.vectorstore).__name__
        parameters["ls_embedding_provider"] = type(self.vectorstore.embeddings).__name__
        return parameters

    def _call(
        self, arguments: dict[str, Any], question: str
    ) -> tuple[CandidateSource, LangChainEmbedder, Sequence[str], ChoiceOptions]:
        """Return where the candidates of one call come from, what it asks, and how it chooses.

        Raises:
            InvalidInputError: If a number is out of its range, or an option cannot be used.
        """
        queries = arguments.pop("queries", None)
        texts = queries or [question]
        if not isinstance(texts, list | tuple) or not all(isinstance(each, str) for each in texts):
            raise InvalidInputError(f"`queries` must be a list of texts, got {queries!r}")
        given = {**self.search_kwargs, **arguments}
        given.pop("verbose", None)  # meant for the callbacks; `invoke` does not take it out
        own = {name: given.pop(name) for name in _PER_CALL if name in given}
        if wrong := sorted(_FOREIGN & given.keys()):  # a store may ignore it without a word
            raise InvalidInputError(unknown_option(type(self).__name__, wrong[0], _PER_CALL))
        call = self.model_copy(update=own)
        k, fetch_k, most = _count("k", call.k), _count("fetch_k", call.fetch_k), call.max_fetch_k
        widest = fetch_k if most is None else _count("max_fetch_k", most)
        for low, high, pair in (
            ("k", "fetch_k", (k, fetch_k)),
            ("fetch_k", "max_fetch_k", (fetch_k, widest)),
        ):
            if pair[0] > pair[1]:
                raise InvalidInputError(
                    f"`{low}` must be <= `{high}`, got {pair[0]} and {pair[1]}: `k` are chosen of "
                    f"`fetch_k` or more candidates; raise `{high}`"
                )
        options = call._options(n_select=k, n_candidates=fetch_k)
        source: CandidateSource = VectorStoreSource(
            self.vectorstore,
            {**given, "filter": call.filter},
            async_client=self.async_client,
            vectors=self.vectors,
        )
        if most is not None:
            source = OversamplingSource(
                source, n_select=k, max_candidates=widest, prefer=options.newness
            )
        return source, embedder_of(self.vectorstore), texts, options


def _count(name: str, value: object) -> int:
    if not isinstance(value, Integral) or value < 1:
        raise InvalidInputError(f"`{name}` must be an integer >= 1, got {value!r}")
    return int(value)
