"""The engine as a field of LangChain's classes: checked, and made from a vector store."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from langchain_core.vectorstores import VectorStore
from pydantic import AfterValidator

from langchain_sift.embedder import LangChainEmbedder, embeddings_of
from langchain_sift.sources import VectorStoreSource
from sift_core import InvalidInputError

if TYPE_CHECKING:
    from sift_core.answering import AnswerEngine, LanguageModel

Mode: TypeAlias = Literal["auto", "base", "context", "fine_tune", "both"]


def checked_engine(engine: object) -> Any:
    """Return `engine` if it is one. Loads torch, as whoever made an engine has.

    Raises:
        InvalidInputError: If it is anything else.
        MissingDependencyError: If torch or transformers is missing.
    """
    from sift_core.answering import AnswerEngine

    if not isinstance(engine, AnswerEngine):
        raise InvalidInputError(
            f"`engine` must be a sift_core.answering.AnswerEngine, got {type(engine).__name__}; "
            f"`AnswerEngine.from_pretrained` or `SIFTAnswer.from_vectorstore` makes one"
        )
    return engine


Engine: TypeAlias = Annotated[Any, AfterValidator(checked_engine)]
"""A field that holds an engine. Any, since its class comes with torch."""


def engine_over(
    vectorstore: VectorStore,
    model: str | Path | LanguageModel,
    search_kwargs: Mapping[str, Any] | None,
    async_client: Any,
    options: Mapping[str, Any],
) -> AnswerEngine:
    """Return an engine that finds its candidates in a LangChain vector store.

    Args:
        vectorstore: A store that knows its embedding model.
        model: Name or folder of a causal LM, or one that is loaded.
        search_kwargs: As `VectorStoreSource` takes them.
        async_client: Likewise.
        options: Further arguments of `AnswerEngine`.

    Raises:
        InvalidInputError: If there is no such model, or an argument cannot be used.
        MissingDependencyError: If torch or transformers is missing.
    """
    from sift_core.answering import AnswerEngine, LanguageModel

    source = VectorStoreSource(vectorstore, search_kwargs, async_client=async_client)
    embedder = LangChainEmbedder(embeddings_of(vectorstore))
    if not isinstance(model, LanguageModel):
        model = LanguageModel.from_pretrained(model)
    return AnswerEngine(language_model=model, source=source, embedder=embedder, **options)
