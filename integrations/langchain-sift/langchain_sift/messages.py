"""LangChain's messages as the core's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import BaseMessage, convert_to_messages

from sift_core import InvalidInputError

_ROLES = {"human": "user", "ai": "assistant"}


def as_core_messages(messages: object) -> list[dict[str, str]]:
    """Return what was said as messages of the core: "role" and "content".

    Neighbours of one role become one message, a line each, since chat templates of some
    models refuse them. Names of speakers are left out. Roles that the core does not know, a
    tool's for instance, are for its `AnswerRequest` to refuse.

    Args:
        messages: LangChain messages, or what LangChain makes messages of: pairs of role and
            text, mappings.

    Raises:
        InvalidInputError: If it is no sequence of such, or a message holds anything but text.
    """
    if isinstance(messages, str | dict | BaseMessage) or not isinstance(messages, Sequence):
        raise InvalidInputError(
            f"a conversation must be a list of messages, got {type(messages).__name__}; put "
            f"a single message into a list"
        )
    try:
        said = convert_to_messages(list(messages))
    # Documented: ValueError for an unknown role or a missing key, the other for another type.
    except (ValueError, NotImplementedError) as error:
        raise InvalidInputError(f"a conversation must be a list of messages: {error}") from error
    turns: list[dict[str, str]] = []
    for message in said:
        kind = message.type.removesuffix("MessageChunk").lower()  # chunks of a stream say so
        role = str(getattr(message, "role", kind))  # `ChatMessage` names it itself
        role, text = _ROLES.get(role, role), _text(message)
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += "\n" + text
        else:
            turns.append({"role": role, "content": text})
    return turns


def _text(message: BaseMessage) -> str:
    """Return a message's text, blocks of text joined."""
    content: str | list[Any] = message.content
    blocks = [content] if isinstance(content, str) else content
    texts: list[Any] = [
        block.get("text") if isinstance(block, dict) and block.get("type") == "text" else block
        for block in blocks
    ]
    if getattr(message, "tool_calls", None) or not all(isinstance(text, str) for text in texts):
        raise InvalidInputError(
            f"messages must be of text alone, got one of the type {message.type!r} with images, "
            f"calls of tools or the like; leave it out or put it into words"
        )
    return "".join(texts)
