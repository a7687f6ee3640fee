"""A LangChain embedding model as `sift_core.Embedder`, with async twins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import VectorStore

from sift_core import InvalidInputError, Query

FloatArray: TypeAlias = npt.NDArray[np.floating[Any]]


class LangChainEmbedder:
    """A LangChain embedding model, seen as what `sift_core` asks of an embedder.

    Exceptions of the model itself pass through.

    Args:
        embeddings: Any LangChain embedding model.
        name: Name of the model, kept beside what it embeds. Default: the name that the
            object gives itself (`model_name`, `model`), else that of its class.

    Raises:
        InvalidInputError: If `embeddings` is no LangChain embedding model.

    Example:
        >>> LangChainEmbedder(embeddings).embed_query("When does the ferry sail?").shape
        (256,)
    """

    def __init__(self, embeddings: Embeddings, name: str | None = None) -> None:
        if not isinstance(embeddings, Embeddings):
            raise InvalidInputError(
                f"`embeddings` must be a langchain_core Embeddings, got "
                f"{type(embeddings).__name__}; pass the model that embedded the documents"
            )
        self.embeddings: Embeddings = embeddings
        own = (name, getattr(embeddings, "model_name", None), getattr(embeddings, "model", None))
        named = (one for one in own if isinstance(one, str) and one)
        self.name: str = next(named, type(embeddings).__name__)

    def embed_query(self, text: str) -> FloatArray:
        """Return the embedding of a question, shape (d,).

        Raises:
            InvalidInputError: If the question is blank or no text.
        """
        return np.asarray(self.embeddings.embed_query(checked_question(text)))

    async def aembed_query(self, text: str) -> FloatArray:
        """Return what `embed_query` returns, by the model's async method."""
        return np.asarray(await self.embeddings.aembed_query(checked_question(text)))

    def embed_documents(self, texts: Sequence[str]) -> FloatArray:
        """Return the embeddings of documents, shape (n, d), in one call of the model, if any.

        Raises:
            InvalidInputError: If the model does not return one vector of d numbers a text.
        """
        vectors = self.embeddings.embed_documents(list(texts)) if texts else []
        return self._matrix(vectors, len(texts))

    async def aembed_documents(self, texts: Sequence[str]) -> FloatArray:
        """Return what `embed_documents` returns, by the model's async method."""
        vectors = await self.embeddings.aembed_documents(list(texts)) if texts else []
        return self._matrix(vectors, len(texts))

    def _matrix(self, vectors: list[list[float]], n: int) -> FloatArray:
        lengths = {len(vector) for vector in vectors}
        if len(vectors) != n or len(lengths) > 1:
            raise InvalidInputError(
                f"{self.name} must return one vector a text, all of one length: {n} text(s) "
                f"gave {len(vectors)} vector(s) of the lengths {sorted(lengths)}"
            )
        return np.array(vectors, dtype=np.float64).reshape(n, -1 if n else 0)


def embedder_of(vectorstore: VectorStore) -> LangChainEmbedder:
    """Return a store's embedding model.

    Raises:
        InvalidInputError: If it does not know it.
    """
    if vectorstore.embeddings is None:
        raise InvalidInputError(
            f"`vectorstore` must know its embedding model, but "
            f"{type(vectorstore).__name__}.embeddings is None; construct the store with an "
            f"`Embeddings` object"
        )
    return LangChainEmbedder(vectorstore.embeddings)


def checked_question(text: Any) -> str:
    """Return `text` if it is one to embed.

    Raises:
        InvalidInputError: If it is no string, blank, or nothing that UTF-8 can hold.
    """
    if not Query(text=text).text.strip():  # refuses all the rest
        raise InvalidInputError(
            f"the question must be a text that is not blank, got {text!r}; nothing is near to it"
        )
    return str(text)
