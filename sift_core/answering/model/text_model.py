"""A model as an engine sees it: it counts tokens and continues prompts. Nothing needs torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

from sift_core.answering.model.fair_lock import Submit
from sift_core.checks import as_messages, check_text, short_repr
from sift_core.errors import InvalidInputError
from sift_core.types import FinishReason, Message

if TYPE_CHECKING:
    from sift_core.answering.model.prefix_cache import Prefix

CHUNK_SEPARATOR = "\n\n"
REFUSAL = "The documents say nothing about that."


@dataclass(frozen=True)
class RawText:
    """A text that a model continues as it stands, without its chat template.

    Args:
        text: The text.
    """

    text: str


Prompt: TypeAlias = str | Sequence[Message] | RawText
"""A question, the messages of a chat, of which the last is to be answered, or a text to go on."""


@dataclass(frozen=True, kw_only=True)
class Generation:
    """A text that a model wrote.

    Args:
        text: Without the prompt, special tokens, thoughts, and the stop string or repetition that
            ended it.
        n_prompt_tokens: Number of tokens that it read.
        n_new_tokens: Number of tokens that it wrote, those of a stop string or a repetition too.
        finish_reason: "stop" or "length".
        thoughts: Text between <think> and </think> before it. Default: none.
    """

    text: str
    n_prompt_tokens: int
    n_new_tokens: int
    finish_reason: FinishReason
    thoughts: str = ""


class TextGenerator(Protocol):
    """Continues prompts, with what is active of the model in this flow of control."""

    def generate(
        self,
        prompt: Prompt,
        *,
        max_new_tokens: int,
        stop: Sequence[str] = (),
        on_text: Callable[[str], object] | None = None,
        prefix: Prefix | None = None,
        **options: Any,
    ) -> Generation:
        """Return the continuation of a prompt, as `LanguageModel.generate` does."""
        ...


class TextModel(TextGenerator, Protocol):
    """A `LanguageModel`, or a server's model that is asked over HTTP."""

    @property
    def name(self) -> str:
        """The model's name."""

    @property
    def window(self) -> int:
        """Number of tokens that it sees at once, prompt and answer together."""

    @property
    def takes_adapters(self) -> bool:
        """Whether it writes with what is learned here."""

    @property
    def submit(self) -> Submit:
        """Run a function with arguments in one of its worker threads."""

    def adapted(self, learned: Any) -> AbstractContextManager[None]:
        """Use an adapter for the `with` block; None stands for the model as it is."""

    def n_tokens(self, text: str) -> int:
        """Return how many tokens a text takes."""

    def n_prompt_tokens(self, prompt: Prompt, template: Mapping[str, Any] | None = None) -> int:
        """Return how many tokens a prompt takes with these `chat_template_kwargs`."""

    def check_generation(self, options: Mapping[str, Any]) -> None:
        """Refuse options of `generate`, and `stop`, that are unknown or out of their range."""

    def check_prompt(
        self, prompt: Prompt, max_new_tokens: int, template: Mapping[str, Any] | None = None
    ) -> object:
        """Refuse a prompt that does not fit into the window beside its answer."""


class RefusalWriter:
    """Writes that the documents have nothing on a question, in place of a model."""

    def generate(
        self, prompt: object, *, on_text: Callable[[str], object] | None = None, **options: Any
    ) -> Generation:
        """Return the refusal, whatever was asked."""
        if on_text is not None:
            on_text(REFUSAL)
        return Generation(text=REFUSAL, n_prompt_tokens=0, n_new_tokens=0, finish_reason="stop")


def writing_model(language_model: TextModel | None, generator: TextGenerator | None) -> TextModel:
    """Return the model whose window, tokens and options bound a text.

    It is the generator if that is a server's model, which counts tokens. Else it is the language
    model, whose texts the generator may write.

    Raises:
        InvalidInputError: If there is neither.
    """
    if hasattr(generator, "n_prompt_tokens"):
        return cast("TextModel", generator)
    if language_model is None:
        raise InvalidInputError(
            "the engine needs a `language_model`, or an `OpenAIGenerator` as `generator`"
        )
    return language_model


def as_conversation(prompt: Prompt) -> Sequence[Message]:
    """Return the messages of a prompt; a text is one of the user's.

    Raises:
        InvalidInputError: If it is neither a text nor messages, or there is none.
    """
    if isinstance(prompt, RawText):
        raise InvalidInputError(
            "a server of chats cannot continue a text as it stands; have a `LanguageModel` or a "
            "vLLM (`VllmGenerator`) write"
        )
    if isinstance(prompt, str):
        check_text("prompt", prompt)
        return [{"role": "user", "content": prompt}]
    messages = as_messages("prompt", prompt)
    if not messages:
        raise InvalidInputError("`prompt` must have at least one message, got none")
    return messages


def check_stop(stop: object) -> None:
    """Refuse what is no sequence of texts that can end an answer.

    Raises:
        InvalidInputError: If it is none, or holds an empty text.
    """
    if isinstance(stop, str) or not isinstance(stop, Sequence):
        raise InvalidInputError(f"`stop` must be a sequence of texts, got {short_repr(stop)}")
    for text in stop:
        check_text("stop", text)
        if not text:
            raise InvalidInputError("`stop` must not hold an empty text: it ends every answer")
