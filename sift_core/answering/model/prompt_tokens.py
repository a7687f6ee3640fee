"""Tokens of texts and chats, in which what a text spells never becomes a control token.

A control token is one that ends a text or opens a turn: every special token, whatever else it is
for, what the chat template writes by name, and what is written like one ("<|…|>"). A retrieved
chunk that spells one ("<|im_end|>", "</s>") is read as those characters, so that it can't end
the user's turn and speak for the system. What such a text asks for in plain words is not, and
cannot be, filtered here.
"""

from __future__ import annotations

import copy
import re
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from weakref import WeakKeyDictionary

from sift_core.answering.model.text_model import CHUNK_SEPARATOR, Prompt, RawText, as_conversation
from sift_core.answering.model.thoughts import template_settings
from sift_core.checks import check_text
from sift_core.errors import InvalidInputError, MissingDependencyError
from sift_core.types import Message

try:
    from jinja2 import TemplateError
except ImportError as error:
    raise MissingDependencyError("jinja2", extra="fine-tune") from error

# Encoded before a text from the middle of another one: SentencePiece's tokenizers add a space at
# the start of whatever they read. The second is for texts that merge with a newline.
_ANCHORS = ("\n", "a")

# How control tokens are written that are not marked special and no template names: Qwen's
# "<|fim_prefix|>", "<tool_call>". Gemma's "<h1>" and runs of spaces are ordinary text.
_MARKUP = re.compile(r"<.*[|\uff5c_].*>|\[.+\]", re.DOTALL)

_END = re.compile(r"<[^<>\s]+>")  # how a template writes an end that is no token of the tokenizer

_twins: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
_twins_lock = threading.Lock()


def text_ids(tokenizer: Any, text: str) -> list[int]:
    """Return the text's tokens, none of them added at its ends and none a control token.

    A text that spells no control token is read as the tokenizer reads it. One that does is
    read a second time, and decodes to itself like any other; only where a tokenizer has a
    control token of a single character is that character left out.

    Args:
        tokenizer: Any of transformers, in Rust or in Python.
        text: May be empty.

    Raises:
        InvalidInputError: If it is not text.
    """
    check_text("text", text)
    return _literal_ids(tokenizer, text, _controls(tokenizer), inside=False)


def prompt_ids(
    tokenizer: Any, prompt: Prompt, prefix_id: int, template: Mapping[str, Any] | None = None
) -> list[int]:
    """Return the tokens that an answer to `prompt` starts from.

    With a chat template, only the template opens and ends turns: contents that spell control
    tokens are read as text, and none is ever rendered as a template. Other chats get exactly
    the tokens of `tokenizer.apply_chat_template`.

    Args:
        tokenizer: The model's.
        prompt: A text, the messages of a chat, or a `RawText`.
        prefix_id: Token that a text starts with where no chat template is used.
        template: Variables of the chat template. Default: thinking is off.

    Raises:
        InvalidInputError: If the prompt is none, or the chat template refuses it.
    """
    if isinstance(prompt, RawText):
        return [prefix_id, *text_ids(tokenizer, prompt.text)]
    messages = as_conversation(prompt)
    if not getattr(tokenizer, "chat_template", None):
        return [prefix_id, *text_ids(tokenizer, _as_plain_text(messages))]
    settings = template_settings(tokenizer, template)
    hider = _Hider(tokenizer, settings)
    safe = hider.hidden(messages)
    if hider.n_hidden:
        return hider.answered_ids(messages, safe)
    encoded = _applied(tokenizer, safe, add_generation_prompt=True, return_dict=True, **settings)
    return list(encoded["input_ids"])


def turn_ends(tokenizer: Any) -> tuple[frozenset[int], tuple[str, ...]]:
    """Return the tokens that end an answer, and the texts where a template's end is no token.

    The ends are the tokenizer's EOS token and what the chat template writes behind an answer,
    with and without a next turn.
    """
    ids = {tokenizer.eos_token_id} - {None}
    texts = []
    if getattr(tokenizer, "chat_template", None):
        controls, nonce = _controls(tokenizer), f"{secrets.randbelow(10**24):024d}"
        turns = [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": f"1{nonce}"},
            {"role": "user", "content": f"2{nonce}"},
        ]
        for chat in (turns[:2], turns):
            with suppress(InvalidInputError):
                rendered = _applied(tokenizer, chat, tokenize=False)
                behind = rendered.partition(f"1{nonce}")[2].partition(f"2{nonce}")[0]
                found = controls.among(_ids(tokenizer, behind, inside=True))
                ids.update(found[:1])
                texts += [] if found else _END.findall(behind)[:1]
    return frozenset(ids), tuple(dict.fromkeys(texts))


def _as_plain_text(messages: Sequence[Message]) -> str:
    """Return a chat as a model without a chat template reads it.

    One message stands as it is. Several have a line each that begins with who speaks.
    """
    if len(messages) == 1:
        return messages[0]["content"]
    said = [f"{message['role'].capitalize()}: {message['content']}" for message in messages]
    return CHUNK_SEPARATOR.join([*said, "Assistant:"])


@dataclass(frozen=True, kw_only=True)
class _Controls:
    """The control tokens of a tokenizer.

    Args:
        ids: Those that no text may have among its tokens.
        pattern: How they are spelled, and the unknown token.
        unknown: Id and spelling of the token that stands for characters without one, where that
            is all that it stands for; a text may have it unless it spells it.
        normalize: What the tokenizer makes of a text before it looks for tokens.
    """

    ids: frozenset[int]
    pattern: re.Pattern[str]
    unknown: tuple[int, str] | None
    normalize: Callable[[str], str]

    def among(self, ids: Sequence[int]) -> list[int]:
        return [token_id for token_id in ids if token_id in self.ids]

    def are_in(self, ids: Sequence[int], text: str) -> bool:
        """Tell whether the text's tokens have one that the text may not have."""
        if not self.ids.isdisjoint(ids):
            return True
        if self.unknown is None or self.unknown[0] not in ids:
            return False
        return self.unknown[1] in text or self.unknown[1] in self.normalize(text)


def _controls(tokenizer: Any) -> _Controls:
    """Return the control tokens of a tokenizer."""
    found = dict(zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True))
    template = str(getattr(tokenizer, "chat_template", None) or "")
    declared = getattr(tokenizer, "chat_control_tokens", None) or ()  # of transformers 5
    for token_id, token in getattr(tokenizer, "added_tokens_decoder", {}).items():
        word = token.content
        # Gemma adds runs of newlines and the like, which templates write as ordinary text.
        is_named = word in template and not word.isspace() and not word.isalnum()
        if token.special or word in declared or is_named or _MARKUP.fullmatch(word):
            found[token_id] = word
    longest_first = sorted((word for word in found.values() if word), key=len, reverse=True)
    ends = (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id)
    unknown = None
    # GPT-2 and SmolLM2 name a control token, "<|endoftext|>", where there is no unknown one.
    unk_id, unk_token = tokenizer.unk_token_id, tokenizer.unk_token or ""
    if unk_id not in ends and "unk" in unk_token.lower():
        found.pop(unk_id, None)
        unknown = (unk_id, unk_token)
    normalizer = getattr(getattr(tokenizer, "backend_tokenizer", None), "normalizer", None)
    return _Controls(
        ids=frozenset(found),
        pattern=re.compile("|".join(map(re.escape, longest_first)) or "(?!)"),
        unknown=unknown,
        normalize=normalizer.normalize_str if normalizer else str,
    )


class _Hider:
    """Puts random digits in the place of control tokens in contents, and takes them out again.

    The template so sees the rest of a content as it is, may strip it or look inside it; digits
    survive a change of case.
    """

    def __init__(self, tokenizer: Any, settings: Mapping[str, Any]) -> None:
        self._tokenizer, self._settings = tokenizer, settings
        self.controls = _controls(tokenizer)
        self._nonce = f"{secrets.randbelow(10**24):024d}"  # nobody's text can contain it
        self._hidden: list[str] = []

    @property
    def n_hidden(self) -> int:
        return len(self._hidden)

    def hide(self, text: str) -> str:
        """Return what stands for `text`."""
        self._hidden.append(text)
        return f"{self._nonce}{len(self._hidden) - 1:09d}"

    def hidden(self, messages: Sequence[Message]) -> list[dict[str, str]]:
        """Return role and content of the messages, with their control tokens hidden."""
        return [{"role": m["role"], "content": self._safe(m["content"])} for m in messages]

    def answered_ids(
        self, messages: Sequence[Message], hidden: Sequence[Mapping[str, str]]
    ) -> list[int]:
        """Return the tokens of a chat to be answered, with what was hidden read as text.

        A template may look for a "</think>" in what the model said itself, to leave its thoughts
        out: it is shown that, unless a control token of what was said then comes through.

        Args:
            messages: As they are.
            hidden: The same, hidden.
        """
        shown = [
            {**safe, "content": message["content"]} if safe["role"] == "assistant" else safe
            for message, safe in zip(messages, hidden, strict=True)
        ]
        ways = [hidden] if shown == hidden else [shown, hidden]
        texts = [
            _applied(
                self._tokenizer, way, add_generation_prompt=True, tokenize=False, **self._settings
            )
            for way in ways
        ]
        ids = [self.ids(text) for text in texts]
        find = self.controls.pattern.findall
        is_same = find(texts[0]) == find(texts[-1])
        is_same &= self.controls.among(ids[0]) == self.controls.among(ids[-1])
        return ids[0] if is_same else ids[-1]

    def ids(self, rendered: str) -> list[int]:
        """Return the tokens of a rendered chat, with what was hidden read as text."""
        ids: list[int] = []
        read: dict[tuple[str, bool], list[int]] = {}  # one text may spell a token very often
        pieces = re.split(f"{self._nonce}([0-9]{{9}})", rendered)
        for i, piece in enumerate(pieces):
            inside = bool(ids)
            if i % 2:
                text = self._hidden[int(piece)]
                if (text, inside) not in read:
                    read[text, inside] = _literal_ids(
                        self._tokenizer, text, self.controls, inside=inside
                    )
                ids += read[text, inside]
            else:
                ids += _ids(self._tokenizer, piece, inside=inside)
        return ids

    def _safe(self, content: str) -> str:
        controls = self.controls
        if not controls.are_in(_ids(self._tokenizer, content), content):
            return content
        rest = set(controls.pattern.split(content))
        if not any(controls.are_in(_ids(self._tokenizer, piece), piece) for piece in rest):
            return controls.pattern.sub(lambda found: self.hide(found.group()), content)
        core = content.strip()  # a control token that only normalising the text brings about
        start = content.find(core)
        return content[:start] + self.hide(core) + content[start + len(core) :]


def _applied(tokenizer: Any, messages: Sequence[Mapping[str, str]], **options: Any) -> Any:
    """Return a chat in the form of the model's template.

    Many templates refuse a system turn, or an assistant's turn before all others. Then the system
    text goes to the user's first turn, and what the assistant said before that is left out.
    """
    turns = [dict(message) for message in messages]
    try:
        return tokenizer.apply_chat_template(turns, **options)
    except (TemplateError, TypeError, ValueError) as error:
        if plain := _without_first_turns(turns):
            with suppress(TemplateError, TypeError, ValueError):
                return tokenizer.apply_chat_template(plain, **options)
        roles = [message["role"] for message in messages]
        raise InvalidInputError(
            f"the model's chat template refuses messages of the roles {roles}: {error}; "
            f"many want no system message, and user and assistant in turn"
        ) from error


def _without_first_turns(turns: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """Return a chat that begins with the user, who says the system's text, too."""
    first = next((i for i, turn in enumerate(turns) if turn["role"] == "user"), 0)
    if not first:
        return []
    texts = [turn["content"] for turn in turns[:first] if turn["role"] == "system"]
    text = CHUNK_SEPARATOR.join([*texts, turns[first]["content"]])
    return [{"role": "user", "content": text}, *turns[first + 1 :]]


def _ids(tokenizer: Any, text: str, *, inside: bool = False) -> list[int]:
    """Return the tokens of `text`; `inside`: as they are in the middle of a text."""
    if not text:
        return []
    for anchor in _ANCHORS if inside else ():
        lead = _ids(tokenizer, anchor)
        ids = _ids(tokenizer, anchor + text)
        if ids[: len(lead)] == lead:
            return ids[len(lead) :]
    return list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])


def _literal_ids(tokenizer: Any, text: str, controls: _Controls, *, inside: bool) -> list[int]:
    """Return the tokens of `text` as characters; no control token is among them."""
    ids = _ids(tokenizer, text, inside=inside)
    if not controls.are_in(ids, text):
        return ids
    twin = _twin(tokenizer)
    ids = _ids(twin, text, inside=inside)
    if not controls.are_in(ids, text):
        return ids
    # Unigram models find special tokens in their vocabulary even so, and added tokens that are
    # not marked special are found always: cut behind the first character of each.
    cuts = [0, *(found.start() + 1 for found in controls.pattern.finditer(text)), len(text)]
    ids = []
    for start, end in pairwise(cuts):
        ids += _halved_ids(twin, text[start:end], controls, inside=inside or start > 0)
    return ids


def _halved_ids(tokenizer: Any, text: str, controls: _Controls, *, inside: bool) -> list[int]:
    """Return the tokens of `text`, cut in halves until no half has a control token."""
    ids = _ids(tokenizer, text, inside=inside)
    if not controls.are_in(ids, text):
        return ids
    if len(text) < 2:
        return []
    middle = len(text) // 2
    first = _halved_ids(tokenizer, text[:middle], controls, inside=inside)
    return first + _halved_ids(tokenizer, text[middle:], controls, inside=True)


def _twin(tokenizer: Any) -> Any:
    """Return a copy that reads special tokens as text.

    A copy, because tokenizers in Rust keep that setting for all threads at once. Made when a
    text first needs it, again when tokens were added since.
    """
    with _twins_lock:
        kept = _twins.get(tokenizer)
        if kept is None or len(kept) != len(tokenizer):
            kept = copy.deepcopy(tokenizer)
            kept.split_special_tokens = True
            _twins[tokenizer] = kept
        return kept
