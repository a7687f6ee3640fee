"""A LangChain vector store as `sift_core.CandidateSource`."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any

from langchain_core.runnables import run_in_executor
from langchain_core.vectorstores import VectorStore

from langchain_sift.candidates import Candidates, Search
from langchain_sift.embedded_candidates import aembed_candidates, embed_candidates
from langchain_sift.embedder import LangChainEmbedder, embeddings_of
from langchain_sift.qdrant_points import aread_qdrant
from langchain_sift.stored_candidates import is_qdrant, stored_reader
from sift_core import CandidatePool, InvalidInputError, Query, paced


class VectorStoreSource:
    """A LangChain vector store, seen as a function from a query to its nearest documents.

    Whoever takes a `sift_core.CandidateSource` takes this one, `sift_core.answering`'s
    `AnswerEngine` for instance. Qdrant, FAISS and LangChain's in-memory store are searched
    with the vectors that they hold; from any other store texts are embedded again, one batch
    a question, with a logged warning.

    Args:
        vectorstore: Any LangChain vector store.
        search_kwargs: Arguments of every search in the store's own words. A "filter" among
            them holds where a call gives none. "k" and "fetch_k" are refused: `fetch` says how
            many.
        async_client: An `AsyncQdrantClient` of the same server, which `afetch` uses instead
            of a thread; for a `QdrantVectorStore` with dense vectors alone.

    Raises:
        InvalidInputError: If a setting cannot be used, or the texts would have to be embedded
            again and the store does not know its model.
    """

    def __init__(
        self,
        vectorstore: VectorStore,
        search_kwargs: Mapping[str, Any] | None = None,
        *,
        async_client: Any = None,
    ) -> None:
        if not isinstance(vectorstore, VectorStore):
            raise InvalidInputError(
                f"`vectorstore` must be a langchain_core VectorStore, got "
                f"{type(vectorstore).__name__}"
            )
        self._options = dict(search_kwargs or {})
        self._filter = self._options.pop("filter", None)
        refused = sorted(self._options.keys() & {"k", "fetch_k", "lambda_mult"})
        if refused:
            raise InvalidInputError(
                f"`search_kwargs` of a source must not hold {refused}: `fetch` says how many "
                f"candidates, and SIFT has no `lambda_mult`; leave them out"
            )
        if async_client is not None and not is_qdrant(vectorstore):
            raise InvalidInputError(
                f"`async_client` is for a QdrantVectorStore with dense vectors, got "
                f"{type(vectorstore).__name__}; leave it out"
            )
        self.vectorstore = vectorstore
        self._async_client = async_client
        self._read = stored_reader(vectorstore)
        self._embedder: LangChainEmbedder | None = None
        if self._read is None:
            self._embedder = LangChainEmbedder(embeddings_of(vectorstore))

    @property
    def gives_vectors(self) -> bool:
        """Whether the store gives its vectors back, so that no text is embedded again."""
        return self._read is not None

    def fetch(self, query: Query, n_candidates: int, *, filter: Any = None) -> CandidatePool:
        """Return the store's nearest documents with their embeddings, nearest first.

        Each row's `metadata` holds "document", the LangChain `Document`, which may be the
        store's own object (copy it before you change it), and "score", the store's own,
        where it gives one. `relevance` holds the fused scores of a hybrid search.

        Args:
            query: What to look for.
            n_candidates: How many at most, >= 1. A smaller store returns all it has.
            filter: The store's own kind of filter; None for that of `search_kwargs`.

        Raises:
            CandidateSourceError: If the store fails.
            InvalidInputError: If query, filter or options and store do not fit together.
        """
        search = self._search(query, n_candidates, filter)
        return self._found(search).pool(query)

    async def afetch(self, query: Query, n_candidates: int, *, filter: Any = None) -> CandidatePool:
        """Return what `fetch` returns, without blocking the event loop.

        By async methods where the store has them; Qdrant without `async_client`, FAISS and the
        in-memory store are searched in a thread. Qdrant at a pace (`sift_core.paced`).
        """
        search = self._search(query, n_candidates, filter)
        if self._embedder is not None:
            found = await aembed_candidates(self.vectorstore, self._embedder, search)
        elif is_qdrant(self.vectorstore):
            async with paced(search.n_candidates, len(query.vector)):
                found = await self._afound(search)
        else:
            found = await self._afound(search)
        return await run_in_executor(None, found.pool, query)

    async def _afound(self, search: Search) -> Candidates:
        if self._async_client is not None:
            return await aread_qdrant(self.vectorstore, self._async_client, search)
        return await run_in_executor(None, self._found, search)

    def _found(self, search: Search) -> Candidates:
        if self._read is not None:
            return self._read(self.vectorstore, search)
        assert self._embedder is not None  # one of both is there
        return embed_candidates(self.vectorstore, self._embedder, search)

    def _search(self, query: Query, n_candidates: int, filter: Any) -> Search:
        if not isinstance(query, Query):
            raise InvalidInputError(
                f"`query` must be a sift_core.Query, got {type(query).__name__}; make one of "
                f"text and embedding"
            )
        if not query.vector.any():
            raise InvalidInputError(
                "the question's embedding must not be all zero: nothing is near to it; does the "
                "model know its words?"
            )
        if not isinstance(n_candidates, Integral) or n_candidates < 1:
            raise InvalidInputError(f"`n_candidates` must be an integer >= 1, got {n_candidates!r}")
        return Search(
            query=query,
            n_candidates=int(n_candidates),
            filter=self._filter if filter is None else filter,
            options=self._options,
        )
