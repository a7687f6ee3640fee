"""LangChain's messages as those of any chat client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import BaseMessage, convert_to_messages

from sift_core import InvalidInputError


def client_messages(messages: object) -> list[dict[str, Any]]:
    """Return LangChain's messages with role and content, for `sift_core.answering.chats`.

    Args:
        messages: LangChain messages, or what LangChain makes messages of: pairs of role and
            text, mappings.

    Raises:
        InvalidInputError: If it is no sequence of such.
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
    return [
        # chunks of a stream say so in their type; `ChatMessage` names its role itself
        {
            "role": getattr(one, "role", one.type.removesuffix("MessageChunk")),
            "content": one.content,
        }
        for one in said
    ]
