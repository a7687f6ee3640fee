"""An answer of the core as a message of LangChain's, whole or in chunks."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from langchain_sift.answer_output import answer_facts
from sift_core import Answer


def chat_result(answer: Answer, model_name: str) -> ChatResult:
    """Return an answer as one message, with what it took in its metadata."""
    message = AIMessage(
        content=answer.text,
        usage_metadata=_usage(answer),
        response_metadata=_metadata(answer, model_name),
    )
    return ChatResult(generations=[ChatGeneration(message=message)])


def chat_piece(text: str) -> ChatGenerationChunk:
    """Return a piece of an answer's text as a chunk of its message."""
    return ChatGenerationChunk(message=AIMessageChunk(content=text))


def last_chunk(answer: Answer, model_name: str) -> ChatGenerationChunk:
    """Return the chunk that follows an answer's pieces: what it took, and no text."""
    message = AIMessageChunk(
        content="",
        usage_metadata=_usage(answer),
        response_metadata=_metadata(answer, model_name),
        chunk_position="last",
    )
    return ChatGenerationChunk(message=message)


def _usage(answer: Answer) -> UsageMetadata:
    return UsageMetadata(
        input_tokens=answer.n_prompt_tokens,
        output_tokens=answer.n_new_tokens,
        total_tokens=answer.n_prompt_tokens + answer.n_new_tokens,
    )


def _metadata(answer: Answer, model_name: str) -> dict[str, Any]:
    """Return all facts but the documents themselves, which `SIFTAnswer` returns."""
    facts = answer_facts(answer)
    del facts["context"]
    return {**facts, "model_name": model_name, "model_provider": "sift"}
