"""Prompts, and the text of a model while it is written: its pieces, and where it stops."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from sift_core.checks import as_messages, check_text
from sift_core.errors import AnswerError, InvalidInputError
from sift_core.types import FinishReason, Message

CHUNK_SEPARATOR = "\n\n"
REPLACEMENT = "\ufffd"  # what a tokenizer decodes the first bytes of a character to

Prompt: TypeAlias = str | Sequence[Message]
"""A text, or the messages of a chat, of which the last is to be answered."""


@dataclass(frozen=True, kw_only=True)
class Generation:
    """What a model wrote.

    Args:
        text: Without the prompt, special tokens and the stop string that ended it.
        n_prompt_tokens: What it read.
        n_new_tokens: What it wrote, tokens of a stop string included.
        finish_reason: "stop" or "length".
    """

    text: str
    n_prompt_tokens: int
    n_new_tokens: int
    finish_reason: FinishReason


class ListenerError(Exception):
    """Carries what `on_text` raised past those who catch a model's own errors.

    Args:
        error: What was raised.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


def as_conversation(prompt: Prompt) -> Sequence[Message]:
    """Return the messages of a prompt; a text is one of the user's.

    Raises:
        InvalidInputError: If it is neither a text nor messages, or there is none.
    """
    if isinstance(prompt, str):
        check_text("prompt", prompt)
        return [{"role": "user", "content": prompt}]
    messages = as_messages("prompt", prompt)
    if not messages:
        raise InvalidInputError("`prompt` must have at least one message, got none")
    return messages


def as_plain_text(messages: Sequence[Message]) -> str:
    """Return a chat as a model without a chat template reads it.

    One message stands as it is. Several have a line each that begins with who speaks.
    """
    if len(messages) == 1:
        return messages[0]["content"]
    said = [f"{message['role'].capitalize()}: {message['content']}" for message in messages]
    return CHUNK_SEPARATOR.join([*said, "Assistant:"])


class TextReader:
    """Reads along while a model writes a text: passes it on, and tells where it is to stop.

    Text is held back while it may be the beginning of a stop string, or of a character.
    Decodes all new tokens at each step: O(n²) in their number, small beside the model.

    Args:
        tokenizer: The model's.
        n_prompt_tokens: Tokens that are not the model's.
        stop: Texts that end the text; none of them empty.
        on_text: Called with each new piece.

    Raises:
        InvalidInputError: If a stop string is empty or no text.
    """

    def __init__(
        self,
        tokenizer: Any,
        *,
        n_prompt_tokens: int,
        stop: Sequence[str] = (),
        on_text: Callable[[str], object] | None = None,
    ) -> None:
        if isinstance(stop, str):
            raise InvalidInputError(f"`stop` must be a sequence of texts, got one text: {stop!r}")
        for text in stop:
            check_text("stop", text)
            if not text:
                raise InvalidInputError("`stop` must not hold an empty text: it ends every answer")
        self._tokenizer = tokenizer
        self._n_prompt_tokens = n_prompt_tokens
        self._stop = tuple(stop)
        self._on_text = on_text
        self._n_passed_on = 0

    @property
    def is_needed(self) -> bool:
        """Whether a text is to be read at all while it is written."""
        return bool(self._stop) or self._on_text is not None

    def read(self, new_ids: Sequence[int]) -> bool:
        """Return whether the text has come to a stop string, after passing on what is certain.

        Args:
            new_ids: All tokens that the model has written so far.

        Raises:
            ListenerError: If `on_text` raised.
        """
        text = self._decoded(new_ids)
        end = self._end(text)
        self._pass_on(text[: self._n_certain(text) if end is None else end])
        return end is not None

    def finished(
        self, new_ids: Sequence[int], *, max_new_tokens: int, ends: Collection[int | None]
    ) -> Generation:
        """Return what was written, after the rest of it was passed on.

        Args:
            new_ids: Tokens that the model wrote.
            max_new_tokens: How many it could write.
            ends: The tokens that end a text.

        Raises:
            ListenerError: If `on_text` raised.
        """
        text = self._decoded(new_ids)
        end = self._end(text)
        text = text if end is None else text[:end]
        self._pass_on(text)
        is_short = len(new_ids) < max_new_tokens
        is_whole = end is not None or is_short or (len(new_ids) > 0 and new_ids[-1] in ends)
        return Generation(
            text=text,
            n_prompt_tokens=self._n_prompt_tokens,
            n_new_tokens=len(new_ids),
            finish_reason="stop" if is_whole else "length",
        )

    def _decoded(self, ids: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(
            ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text

    def _end(self, text: str) -> int | None:
        """Return where the first stop string begins; None if there is none."""
        found = [start for stop in self._stop if (start := text.find(stop)) >= 0]
        return min(found, default=None)

    def _n_certain(self, text: str) -> int:
        """Return how many characters nothing that follows can take back."""
        certain = len(text.rstrip(REPLACEMENT))
        for stop in self._stop:
            for size in range(min(len(stop) - 1, len(text)), 0, -1):
                if text.endswith(stop[:size]):
                    certain = min(certain, len(text) - size)
                    break
        return certain

    def _pass_on(self, text: str) -> None:
        if self._on_text is not None and len(text) > self._n_passed_on:
            piece = text[self._n_passed_on :]
            self._n_passed_on = len(text)
            try:
                self._on_text(piece)
            except Exception as error:  # whatever it is, it is the listener's own
                raise ListenerError(error) from error


@contextmanager
def generation_errors(options: Mapping[str, Any]) -> Iterator[None]:
    """Turn what transformers and torch raise into errors of ours, and let a listener's pass."""
    try:
        yield
    except ListenerError as stopped:
        raise stopped.error from None
    except RuntimeError as error:
        raise AnswerError(f"the model could not generate: {error}") from error
    except InvalidInputError:
        raise
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"the model cannot generate with {sorted(options)}: {error}; see "
            f"transformers.GenerationConfig for what there is"
        ) from error
