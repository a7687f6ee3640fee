"""What a caller asks, and the documents that the engine chooses for it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langchain_core.documents import Document
from langchain_core.runnables import run_in_executor

from langchain_sift.answer_messages import as_core_messages
from langchain_sift.document_vectors import known_vectors, pool_of, texts_to_embed
from langchain_sift.embedder import checked_question
from langchain_sift.sources import VectorStoreSource
from sift_core import AnswerMode, CandidatePool, InvalidInputError, Query

if TYPE_CHECKING:
    from sift_core.answering import AnswerEngine, Choice


@dataclass(frozen=True, kw_only=True)
class Request:
    """A question with all that is asked along with it.

    Args:
        question: In words, not blank.
        history: Messages of the core, oldest first.
        filter: Restricts what the engine fetches.
        context: Documents to choose from; None where the engine fetches its own.
    """

    question: str
    history: Sequence[Mapping[str, str]] = ()
    filter: Any = None
    context: Sequence[Document] | None = None


def as_request(given: object) -> Request:
    """Return what a runnable was given as a request.

    Args:
        given: A question, or a mapping with "input" and perhaps "context", "chat_history" and
            "filter"; what else it holds is for others.

    Raises:
        InvalidInputError: If there is no question, or a part is of another kind.
    """
    if isinstance(given, str):
        return Request(question=checked_question(given))
    if not isinstance(given, Mapping):
        raise InvalidInputError(
            f'the input must be a question or {{"input": question, …}}, got {type(given).__name__}'
        )
    if "input" not in given:
        raise InvalidInputError(
            f'the input must have the question as "input", got the keys {sorted(map(str, given))}'
        )
    context = given.get("context")
    if context is not None and (
        not isinstance(context, list | tuple)
        or not all(isinstance(document, Document) for document in context)
    ):
        raise InvalidInputError(
            f'"context" must be a list of LangChain Documents, got {type(context).__name__}; '
            f"pass documents before they are made into one text"
        )
    return Request(
        question=checked_question(given["input"]),
        history=as_core_messages(given.get("chat_history") or []),
        filter=given.get("filter"),
        context=context,
    )


def choose(engine: AnswerEngine, request: Request, mode: str) -> Choice:
    """Return the engine's `Choice` for a request; the model does not run.

    Documents of a context get their vectors from the engine's store by id; the rest of their
    texts is embedded in one batch, with a logged warning. In base mode nothing is embedded.

    Raises:
        InvalidInputError: If request, mode and engine do not fit together.
        CandidateSourceError: If the store fails.
    """
    if request.context is None or mode == AnswerMode.BASE:
        return engine.choose(
            request.question, mode=mode, filter=request.filter, history=request.history
        )
    if not request.context:
        query = Query(text=request.question, history=request.history)
        return engine.choose_from(query, CandidatePool.empty(), mode=mode)
    if engine.embedder is None:
        raise InvalidInputError(
            "this engine has no `embedder` to choose from a context with; construct it with the "
            "model of your documents, or ask in mode 'base'"
        )
    started = time.perf_counter()
    query = Query(
        text=request.question,
        embedding=engine.embedder.embed_query(request.question),
        embedder_name=engine.embedder.name,
        history=request.history,
    )
    pool = _pool(engine, query, request.context)
    timings = {"embed": time.perf_counter() - started}
    return engine.choose_from(query, pool, mode=mode, timings=timings)


async def achoose(engine: AnswerEngine, request: Request, mode: str) -> Choice:
    """Return what `choose` returns, without blocking the event loop."""
    if request.context is not None and mode != AnswerMode.BASE:
        return await run_in_executor(None, choose, engine, request, mode)
    return await engine.achoose(
        request.question, mode=mode, filter=request.filter, history=request.history
    )


def _pool(engine: AnswerEngine, query: Query, documents: Sequence[Document]) -> CandidatePool:
    """Return documents with vectors from the engine's store where it has them by id."""
    assert engine.embedder is not None  # the caller has looked
    store = engine.source.vectorstore if isinstance(engine.source, VectorStoreSource) else None
    vectors = known_vectors(documents, store, dimension=len(query.vector))
    texts = texts_to_embed(documents, vectors)
    embedded = engine.embedder.embed_documents(texts) if texts else None
    return pool_of(documents, query, vectors, embedded, relevance_key="relevance_score")
