"""What one sets about a chat model, and what becomes of it in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import BaseMessage
from pydantic import BaseModel, Field, model_validator

from langchain_sift.answer_engine import Engine, Mode
from langchain_sift.answer_messages import as_core_messages
from langchain_sift.answer_request import Request
from langchain_sift.chat_options import call_options, constructor_options, generation_options
from langchain_sift.embedder import checked_question
from sift_core import InvalidInputError


@dataclass(frozen=True, kw_only=True)
class ChatCall:
    """One answer that is asked for.

    Args:
        request: The last message as the question, and those before it.
        mode: How to answer.
        generation: How to generate, as the engine takes it.
    """

    request: Request
    mode: str
    generation: Mapping[str, Any]


class ChatSettings(BaseModel):
    """The fields of `ChatSIFT`, which documents them."""

    engine: Engine = Field(exclude=True, repr=False)
    mode: Mode | None = None
    max_new_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0)
    stop: list[str] | None = None
    generation: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _rename(cls, values: Any) -> Any:
        return constructor_options(values) if isinstance(values, dict) else values

    @property
    def model_name(self) -> str:
        """Name or folder of the language model."""
        model = self.engine.language_model.model
        return str(getattr(model, "name_or_path", "") or type(model).__name__)

    @property
    def model(self) -> str:
        """The same, as LangSmith and others call it."""
        return self.model_name

    @property
    def max_tokens(self) -> int:
        """Length of an answer at most."""
        return int(self.max_new_tokens or self.engine.max_new_tokens)

    @property
    def chooses(self) -> bool:
        """Whether the engine can find documents for a question."""
        return self.engine.source is not None and self.engine.embedder is not None

    @property
    def default_mode(self) -> Mode:
        """How it answers where a call says nothing."""
        return self.mode or ("auto" if self.chooses else "base")

    def _call(
        self, messages: Sequence[BaseMessage], stop: list[str] | None, options: Mapping[str, Any]
    ) -> ChatCall:
        """Return what one call asks for; its own options go before the model's.

        Raises:
            InvalidInputError: If the last message is no human's, a message is not of text
                alone, or an option cannot be used.
        """
        own = call_options(options, self.model_name)
        *history, last = as_core_messages(messages) or [{"role": "nobody"}]
        if last["role"] != "user":
            raise InvalidInputError(
                f"the last message must come from a human, got one of the role {last['role']!r}; "
                f"it is the question"
            )
        request = Request(
            question=checked_question(last["content"]),
            history=history,
            filter=own.pop("filter", None),
        )
        mode = own.pop("mode", None) or self.default_mode
        generation = generation_options(
            max_new_tokens=own.pop("max_new_tokens", self.max_new_tokens),
            temperature=own.pop("temperature", self.temperature),
            stop=self.stop if stop is None else stop,
        )
        return ChatCall(
            request=request, mode=mode, generation={**self.generation, **generation, **own}
        )
