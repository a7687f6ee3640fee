"""Separate a model's thoughts from its answer, and switch thinking in the chat template."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any

from sift_core.checks import short_repr
from sift_core.errors import InvalidInputError

BEGIN, END = "<think>", "</think>"
_WORD = re.compile(r"\w[\w .-]{0,63}")  # a text that cannot spell a token of the chat template


def template_settings(tokenizer: Any, settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the variables that the chat template gets; thinking is off unless `settings` ask.

    Args:
        tokenizer: The model's.
        settings: `chat_template_kwargs` of the caller. Default: none.
    """
    template = str(getattr(tokenizer, "chat_template", None) or "")
    off = {"enable_thinking": False} if "enable_thinking" in template else {}
    return {**off, **(settings or {})}


def check_template_settings(tokenizer: Any, settings: object) -> None:
    """Refuse variables of a chat template that are arguments of the tokenizer or could hold markup.

    Raises:
        InvalidInputError: If `settings` are no mapping of names to numbers, booleans, None or
            short words.
    """
    if settings is None:
        return
    if not isinstance(settings, Mapping) or not all(isinstance(name, str) for name in settings):
        raise InvalidInputError(
            f"`chat_template_kwargs` must be a mapping of names, got {short_repr(settings)}"
        )
    taken = {*inspect.signature(tokenizer.apply_chat_template).parameters, "messages"}
    for name, value in settings.items():
        if name in taken or not name.isidentifier():
            raise InvalidInputError(
                f"`chat_template_kwargs` cannot have {short_repr(name)}, which is no variable of a "
                f"template for callers; `enable_thinking` is one"
            )
        is_word = isinstance(value, str) and _WORD.fullmatch(value)
        if not (is_word or value is None or isinstance(value, bool | int | float)):
            raise InvalidInputError(
                f"`chat_template_kwargs` must have numbers, true, false or words of at most 64 "
                f"letters, got {short_repr(value)} for {name!r}"
            )


def split_thoughts(text: str, *, is_open: bool) -> tuple[str, str]:
    """Return what was thought, and the answer behind it.

    Args:
        text: What a model wrote so far.
        is_open: Whether the prompt ends with the mark that begins a thought.
    """
    thoughts, rest = [], BEGIN + text if is_open else text
    while rest.lstrip().startswith(BEGIN):
        thought, _, rest = rest.lstrip().removeprefix(BEGIN).partition(END)
        thoughts.append(thought.strip())
    return "\n\n".join(filter(None, thoughts)), rest.lstrip() if thoughts else rest
