"""What LangChain's callers ask an answer engine, and the documents that it chooses for it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langchain_core.documents import Document
from langchain_core.messages import BaseMessage, convert_to_messages
from langchain_core.runnables import run_in_executor

from langchain_sift.embedder import checked_question
from langchain_sift.sources import VectorStoreSource, pool_of
from sift_core import AnswerMode, CandidatePool, InvalidInputError, Query

if TYPE_CHECKING:
    from sift_core.answering import AnswerEngine, Choice

_ROLES = {"human": "user", "ai": "assistant", "system": "system"}


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question with all that is asked along with it.

    Args:
        text: In words, not blank.
        options: Fields of a `sift_core.answering.AnswerRequest`, and settings of generation.
        context: Documents to choose from; None where the engine fetches its own.
    """

    text: str
    options: Mapping[str, Any]
    context: Sequence[Document] | None = None


def as_question(given: object, options: Mapping[str, Any]) -> Question:
    """Return what a runnable was given as a question.

    Args:
        given: A question, or a mapping with "input" and perhaps "context", "chat_history" and
            "filter"; what else it holds is for others.
        options: As in `Question`.

    Raises:
        InvalidInputError: If there is no question, or a part is of another kind.
    """
    if isinstance(given, str):
        return Question(text=checked_question(given), options=options)
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
    history = as_core_messages(given.get("chat_history") or [])
    asked = {"history": history} | ({"filter": given["filter"]} if "filter" in given else {})
    text = checked_question(given["input"])
    return Question(text=text, options={**options, **asked}, context=context)


def choose(engine: AnswerEngine, question: Question) -> Choice:
    """Return the engine's `Choice` for a question; the model does not run.

    Documents of a context get their vectors from the engine's store by id; the rest of their
    texts is embedded in one batch, with a logged warning. In base mode nothing is embedded.

    Raises:
        InvalidInputError: If question and engine do not fit together.
        CandidateSourceError: If the store fails.
    """
    text, documents, options = question.text, question.context, dict(question.options)
    if documents is None or options.get("mode") == AnswerMode.BASE:
        return engine.choose(text, **options)
    history = options.pop("history", ())
    options.pop("filter", None)  # for what the engine fetches
    if not documents:
        nothing = Query(text=text, history=history)
        return engine.choose_from(nothing, CandidatePool.empty(), **options)
    embedder, source = engine.embedder, engine.source
    if embedder is None:
        raise InvalidInputError(
            "this engine has no `embedder` to choose from a context with; construct it with the "
            "model of your documents, or ask in mode 'base'"
        )
    started = time.perf_counter()
    vector = embedder.embed_query(text)
    query = Query(text=text, embedding=vector, embedder_name=embedder.name, history=history)
    store = source.vectorstore if isinstance(source, VectorStoreSource) else None
    pool = pool_of(query, documents, store, embedder, "relevance_score")
    timings = {"embed": time.perf_counter() - started}
    return engine.choose_from(query, pool, timings=timings, **options)


async def achoose(engine: AnswerEngine, question: Question) -> Choice:
    """Return what `choose` returns, without blocking the event loop."""
    if question.context is None:
        return await engine.achoose(question.text, **question.options)
    return await run_in_executor(None, choose, engine, question)


def as_core_messages(messages: object) -> list[dict[str, str]]:
    """Return what was said as messages of the core: "role" and "content".

    Neighbours of one role become one message, a line each, since chat templates of some
    models refuse them. Names of speakers are left out.

    Args:
        messages: LangChain messages, or what LangChain makes messages of: pairs of role and
            text, mappings.

    Raises:
        InvalidInputError: If it is no sequence of such, or a message holds anything but text
            or comes from a tool.
    """
    if isinstance(messages, str | dict | BaseMessage) or not isinstance(messages, Sequence):
        raise InvalidInputError(
            f"a conversation must be a list of messages, got {type(messages).__name__}; put "
            f"a single message into a list"
        )
    try:
        said = convert_to_messages(list(messages))
    except (ValueError, NotImplementedError) as error:  # the two that it raises
        raise InvalidInputError(f"a conversation must be a list of messages: {error}") from error
    turns: list[dict[str, str]] = []
    for message in said:
        role, text = _role(message), _text(message)
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += "\n" + text
        else:
            turns.append({"role": role, "content": text})
    return turns


def _text(message: BaseMessage) -> str:
    """Return a message's text, blocks of text joined."""
    if getattr(message, "tool_calls", None) or getattr(message, "invalid_tool_calls", None):
        raise InvalidInputError(
            "a message of the model holds calls of tools, which this model cannot read; pass "
            "messages of text alone"
        )
    content: str | list[Any] = message.content
    blocks = [content] if isinstance(content, str) else content
    return "".join(_text_of_block(block, message) for block in blocks)


def _text_of_block(block: object, message: BaseMessage) -> str:
    if isinstance(block, str):
        return block
    kind = block.get("type") if isinstance(block, dict) else type(block).__name__
    if kind == "text" and isinstance(block, dict) and isinstance(block.get("text"), str):
        text: str = block["text"]
        return text
    raise InvalidInputError(
        f"messages must be of text alone, got a block of the type {kind!r} in a message of the "
        f"type {message.type!r}; leave it out or put it into words"
    )


def _role(message: BaseMessage) -> str:
    kind = message.type.removesuffix("MessageChunk").lower()  # chunks of a stream say so
    role = _ROLES.get(kind) or getattr(message, "role", None)  # `ChatMessage` names it itself
    if role in _ROLES.values():
        return str(role)
    if role in _ROLES:
        return _ROLES[role]
    raise InvalidInputError(
        f"messages must come from the system, a human or the model, got one of the type "
        f"{message.type!r}; this model uses no tools, so leave such messages out"
    )
