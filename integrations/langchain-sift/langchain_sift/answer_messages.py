"""LangChain's messages as the core's: text alone, from people, models and the system."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import BaseMessage, convert_to_messages

from sift_core import InvalidInputError

_ROLES = {"human": "user", "ai": "assistant", "system": "system"}


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
        role, text = _role(message), text_of(message)
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += "\n" + text
        else:
            turns.append({"role": role, "content": text})
    return turns


def text_of(message: BaseMessage) -> str:
    """Return a message's text, blocks of text joined.

    Raises:
        InvalidInputError: If it holds images, calls of tools or anything else.
    """
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
