"""What chat clients send, as requests to an engine: one rule for the service and the plugins.

A client sends back what models wrote before: reasoning, calls of tools, refusals. It sends more
messages in a row of one role, and a length that no window has. It also asks the same model for a
title of the chat. Each of these has an answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sift_core.answering.request import AnswerRequest
from sift_core.checks import short_repr
from sift_core.errors import InvalidInputError
from sift_core.types import AnswerMode, CandidatePool, Message, Query

if TYPE_CHECKING:
    from sift_core.answering.engine import AnswerEngine

__all__ = ["as_turns", "chat_request", "is_about_a_chat", "with_fitting_length"]

_ROLES = {
    "developer": "system",
    "human": "user",
    "ai": "assistant",
    "chatbot": "assistant",
    "model": "assistant",
}
_ROLES_OF_TOOLS = ("tool", "function")
_BLOCKS_OF_TEXT = ("text", "input_text", "output_text")
_BLOCKS_OF_TOOLS = ("tool_result", "tool_use", "tool_call", "function_call", "function_call_output")
_USER_LINE = re.compile(r"(?im)^\W{0,4}(?:user|human)\W{0,4}:")
_MODEL_LINE = re.compile(r"(?im)^\W{0,4}(?:assistant|ai|bot|chatbot|model)\W{0,4}:")
_ABOUT_A_CHAT = re.compile(
    r"(?i)\b(?:titles?|headline|name|topics?|subject|tags?|categor\w+|summar\w+|follow.?ups?|"
    r"autocomplet\w*|(?:search )?quer(?:y|ies)|emojis?)\b"
)
_INSTRUCTIONS = 2000  # characters before the chat, at most


def as_turns(messages: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Return the messages of a client as turns of system, user and assistant.

    Neighbours of one role become one turn, a line each: chat templates of some models refuse them.
    All system texts become the first turn. Turns of tools, calls of tools and empty turns are left
    out, and blocks of an assistant's turn that are not text, such as its reasoning.

    Args:
        messages: Mappings with "role" and "content". A content is a text, None, or a list of
            blocks with a "type" each.

    Raises:
        InvalidInputError: If a role is unknown, or a user's turn has an image or other block that
            cannot be read.
    """
    turns: list[Message] = []
    system: list[str] = []
    for i, message in enumerate(messages):
        role = _role(message)
        if role in _ROLES_OF_TOOLS:
            continue
        if role not in ("system", "user", "assistant"):
            raise InvalidInputError(
                f"`messages.{i}.role` must be system, developer, user or assistant, got "
                f"{short_repr(message.get('role'))}"
            )
        text = _text(message.get("content"), i, is_of_model=role == "assistant")
        if not text.strip():
            continue
        if role == "system":
            system.append(text)
        elif turns and turns[-1]["role"] == role:
            turns[-1] = {"role": role, "content": f"{turns[-1]['content']}\n{text}"}
        else:
            turns.append({"role": role, "content": text})
    first: list[Message] = [{"role": "system", "content": "\n".join(system)}] if system else []
    return first + turns


def _role(message: Mapping[str, Any]) -> str:
    role = str(message.get("role")).lower()
    return _ROLES.get(role, role)


def _text(content: Any, position: int, *, is_of_model: bool) -> str:
    """Return the text of a message's content."""
    if content is None or isinstance(content, str):
        return content or ""
    place = f"messages.{position}.content"
    if not isinstance(content, Sequence):
        raise InvalidInputError(f"`{place}` must be text or blocks, got {short_repr(content)}")
    texts: list[str] = []
    for block in content:
        if isinstance(block, str):
            texts.append(block)
            continue
        kind = block.get("type") if isinstance(block, Mapping) else type(block).__name__
        if kind in _BLOCKS_OF_TEXT and isinstance(block.get("text"), str):
            texts.append(block["text"])
        elif not is_of_model and kind not in _BLOCKS_OF_TOOLS:
            raise InvalidInputError(
                f"`{place}` must be text, got a part of type {short_repr(kind)}; leave it out or "
                f"put it into words"
            )
    return "".join(texts)


def chat_request(messages: Sequence[Mapping[str, Any]], **fields: Any) -> AnswerRequest:
    """Return the request to answer the last of a client's messages after the others.

    A message that holds a chat and asks for its title, its tags or the like is a client's own
    question: it is answered in mode "base", and nothing is searched or learned for it.

    Args:
        messages: As for `as_turns`.
        fields: Fields of `AnswerRequest`, and settings of generation. A `max_new_tokens` of 0 or
            less, as clients send it for any length, stands for the engine's.

    Raises:
        InvalidInputError: As `as_turns` does, or if the last turn is not the user's.
    """
    turns = as_turns(messages)
    if not turns or turns[-1]["role"] != "user":
        if messages and _role(messages[-1]) == "user":
            raise InvalidInputError("the question is empty; ask something")
        last = turns[-1]["role"] if turns else "none"
        raise InvalidInputError(f"the last message must be the user's, got {last!r}")
    length = fields.get("max_new_tokens")
    if isinstance(length, int) and length < 1:
        del fields["max_new_tokens"]
    *history, question = turns
    if is_about_a_chat(question["content"]):
        fields["mode"] = AnswerMode.BASE
    return AnswerRequest.of(question["content"], {**fields, "history": history})


def is_about_a_chat(question: str) -> bool:
    """Tell whether a client asks about a chat that its question holds: for a title or the like."""
    user, model = _USER_LINE.search(question), _MODEL_LINE.search(question)
    if not user or not model:
        return False
    start = min(user.start(), model.start())
    before, after = question[:start], question[max(user.end(), model.end()) :]
    return any(map(_ABOUT_A_CHAT.search, (before[:_INSTRUCTIONS], after[-_INSTRUCTIONS:])))


def with_fitting_length(
    engine: AnswerEngine, request: AnswerRequest, limit: int | None = None
) -> AnswerRequest:
    """Return a request whose answer fits into the window beside the question.

    A length that does not fit becomes half of what the question leaves, so that documents have
    the other half. The engine's default length becomes all of it at most.

    Args:
        engine: Answers the request.
        request: The question.
        limit: Length of an answer at most, in tokens. Default: the window.

    Raises:
        InvalidInputError: If the question alone fills the window, or an option of generation
            cannot be used.
    """
    query = Query(text=request.question, history=request.history)
    answerer = engine.answerer_for(replace(request, max_new_tokens=1))
    answerer.check(query)
    room = 1 + answerer.room(answerer.prompt_for(query, CandidatePool.empty()))
    n = request.max_new_tokens
    if n is None:
        n = min(engine.max_new_tokens, room)
    elif n > room:
        n = max(1, room // 2)
    return replace(request, max_new_tokens=n if limit is None else min(n, limit))
