"""A prompt or a chat of LlamaIndex as what an engine answers without documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from llama_index.core.base.llms.types import ChatMessage, MessageRole

from sift_core import CandidatePool, InvalidInputError, Query

if TYPE_CHECKING:
    from sift_core.answering import AnswerEngine, Choice


def choice_for_prompt(
    engine: AnswerEngine, prompt: str, history: Sequence[dict[str, str]] = ()
) -> Choice:
    """Return the choice of mode "base" for a prompt, after earlier messages."""
    query = Query(text=prompt, history=history)
    return engine.choose_from(query, CandidatePool.empty(), mode="base")


def choice_for_chat(engine: AnswerEngine, messages: Sequence[ChatMessage]) -> Choice:
    """Return the choice for the last message, with the others before it.

    Raises:
        InvalidInputError: If the last message is not the user's, or there is none.
    """
    if not messages or messages[-1].role != MessageRole.USER:
        last = messages[-1].role.value if messages else "none"
        raise InvalidInputError(f"the last message must be the user's, got {last!r}")
    *earlier, question = (message.content or "" for message in messages)
    roles = [message.role.value for message in messages]
    history = [{"role": r, "content": c} for r, c in zip(roles, earlier, strict=False)]
    return choice_for_prompt(engine, question, history)
