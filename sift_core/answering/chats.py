"""Turn the messages of chat clients into requests: one rule for the service and the plugins.

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
_USER_LINE = re.compile(r"(?im)^[^\w\n]{0,4}(?:user|human)\W{0,4}:")
_MODEL_LINE = re.compile(r"(?im)^[^\w\n]{0,4}(?:assistant|ai)\W{0,4}:")
# Clients put an element or a heading before a chat.
_CHAT_BEGINS = re.compile(
    r"(?im)<(?:chat_history|conversation)>|^[^\n:]{0,30}\b(?:chat|conversation)(?: history)?:\s*$"
)
_SENTENCE_ENDS = re.compile(r"(?<!\d)[.!?]\s|\n\n")
_IMPERATIVE = re.compile(
    r"(?im)^\W{0,8}(?:please |based on [^,\n]{1,60}, )?(?:analy[sz]e|create|determine|generate|"
    r"give|propose|provide|suggest|summari[sz]e|write)\b"
)
_THE_CHAT = re.compile(
    r"(?i)\b(?:the|this|our)(?: above| following| user's)? (?:chat|conversation|dialogue)"
    r"(?: history)?(?=[^\w\s]|\s*$| (?:a|above|and|as|below|in|into|so|to|using|with|without)\b)"
)
_TITLE = re.compile(r"(?i)\b(?:titles?|headline)\b|\bconversation a name\b")
_THING = re.compile(
    rf"{_TITLE.pattern}|\b(?:tags|follow.?ups?|emojis?|search queries|search is necessary)\b"
)
# Marks of any language: the keys that Open WebUI reads of the answer, the locale at LobeChat's end.
_ANSWER_KEY = re.compile(r'\{\s*"(?:title|tags|follow_ups|queries)"\s*:')
_LOCALE_END = re.compile(r"[:\uff1a]\s*[a-z]{2,3}-[A-Z][A-Za-z]{1,3}[.\u3002]?\s*$")
_HEAD, _TAIL = 8000, 1000  # characters of a question that are looked at


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

    Example:
        >>> greeting = {"role": "user", "content": "Hello!"}
        >>> turns = as_turns([greeting, {"role": "user", "content": "When does it sail?"}])
        >>> [turn["content"].splitlines() for turn in turns]
        [['Hello!', 'When does it sail?']]
    """
    turns: list[tuple[str, list[str]]] = []
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
        elif turns and turns[-1][0] == role:
            turns[-1][1].append(text)
        else:
            turns.append((role, [text]))
    if system:
        turns.insert(0, ("system", system))
    return [{"role": role, "content": "\n".join(texts)} for role, texts in turns]


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

    Example:
        >>> messages = [{"role": "user", "content": "When does the ferry sail?"}]
        >>> request = chat_request(messages, mode="context")
        >>> request.question, request.mode.value
        ('When does the ferry sail?', 'context')
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
    if is_about_a_chat(question["content"], history):
        fields["mode"] = AnswerMode.BASE
    return AnswerRequest.of(question["content"], {**fields, "history": history})


def is_about_a_chat(question: str, history: Sequence[Message] = ()) -> bool:
    """Tell whether a client asks, of a chat that it sends, for the title, tags or the like.

    Documents are left out then, so the rule is strict: one sentence must name both the chat and
    what to make of it, and stand before or behind the chat. A title may also be asked for in the
    system's turn, or of the turns before.

    Takes O(1) time: the beginning and the end of a question are looked at.

    Example:
        >>> is_about_a_chat("When does the ferry sail?")
        False
        >>> task = "Summarize the conversation into a title."
        >>> is_about_a_chat(chr(10).join([task, "", "Conversation:", "User: hi", "AI: hello"]))
        True
    """
    head, tail = question[:_HEAD], question[-_TAIL:]
    if head.lstrip().startswith("### Task:") and "<chat_history>" in head:  # Open WebUI's, any of
        return True
    before, mark, _ = head.partition("<chat_history>")
    if mark and _ANSWER_KEY.search(before):
        return True
    speakers = [_USER_LINE.search(head), _MODEL_LINE.search(head)]
    starts = [one.start() for one in (*speakers, _CHAT_BEGINS.search(head)) if one]
    if _CHAT_BEGINS.search(head) or all(speakers):
        ends = [one.end() for line in (_USER_LINE, _MODEL_LINE) for one in line.finditer(tail)]
        asked = f"{head[: min(starts)]}\n\n{tail[max(ends, default=0) :]}"
        if _asks_for(_THING, asked) or (not min(starts) and _LOCALE_END.search(tail)):
            return True
        system = [turn["content"] for turn in history if turn["role"] == "system"]
        return not min(starts) and _asks_for(_TITLE, "\n\n".join(system)[:_HEAD])
    is_short = len(question) <= _TAIL and any(turn["role"] == "assistant" for turn in history)
    return is_short and _asks_for(_TITLE, question)


def _asks_for(thing: re.Pattern[str], text: str) -> bool:
    """Tell whether one sentence is an imperative that names the chat and such a thing."""
    patterns = (_IMPERATIVE, _THE_CHAT, thing)
    return any(
        all(pattern.search(sentence) for pattern in patterns)
        for sentence in _SENTENCE_ENDS.split(text)
    )


def with_fitting_length(
    engine: AnswerEngine, request: AnswerRequest, limit: int | None = None
) -> AnswerRequest:
    """Return a request whose answer fits into the window beside the question.

    A length that does not fit becomes half of what the question leaves, so that documents have
    the other half; in mode "base" all of it.

    Args:
        engine: Answers the request.
        request: The question.
        limit: Length of an answer at most, in tokens. Default: the window.

    Raises:
        InvalidInputError: If the question alone fills the window, or an option of generation
            cannot be used.

    Example:
        >>> from sift_core.answering import AnswerRequest
        >>> request = AnswerRequest(question="When does the ferry sail?", max_new_tokens=100_000)
        >>> with_fitting_length(engine, request).max_new_tokens < engine.language_model.window
        True
    """
    query = Query(text=request.question, history=request.history)
    answerer = engine.answerer_for(replace(request, max_new_tokens=1))
    answerer.check(query)
    room = 1 + answerer.room(answerer.prompt_for(query, CandidatePool.empty()))
    n = engine.max_new_tokens if request.max_new_tokens is None else request.max_new_tokens
    if n > room:
        n = room if request.mode is AnswerMode.BASE else max(1, room // 2)
    return replace(request, max_new_tokens=n if limit is None else min(n, limit))
