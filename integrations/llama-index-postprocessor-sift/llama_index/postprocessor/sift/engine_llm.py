"""The engine's language model as an LLM of LlamaIndex, for whatever needs one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    ChatResponseAsyncGen,
    ChatResponseGen,
    CompletionResponse,
    CompletionResponseAsyncGen,
    CompletionResponseGen,
    LLMMetadata,
    MessageRole,
)
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.llms.callbacks import llm_chat_callback, llm_completion_callback
from llama_index.core.llms.custom import CustomLLM

from sift_core import CandidatePool, InvalidInputError, Query

if TYPE_CHECKING:
    from sift_core.answering import AnswerEngine, Choice


class EngineLLM(CustomLLM):
    """The base model of an `AnswerEngine`, without documents and without fine-tuning.

    For engines that need some LLM where no other is at hand. Several answers at once take turns.

    Args:
        engine: Whose language model answers, with its settings for generation.

    Raises:
        InvalidInputError: In a call, if prompt and answer do not fit into the window, or the
            last message is not the user's.
        AnswerError: In a call, if the model fails.
    """

    _engine: Any = PrivateAttr()

    def __init__(self, engine: AnswerEngine) -> None:
        super().__init__()
        self._engine = engine

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex lists it."""
        return "SIFTEngineLLM"

    @property
    def metadata(self) -> LLMMetadata:
        """Window and length of an answer, both in tokens."""
        model = self._engine.language_model
        return LLMMetadata(
            context_window=model.window,
            num_output=self._engine.max_new_tokens,
            is_chat_model=True,
            model_name=model.model.config.name_or_path or type(model.model).__name__,
        )

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """Return the model's continuation of a prompt."""
        answer = self._engine.answer_from(_choice(self._engine, prompt), **kwargs)
        return CompletionResponse(text=answer.text)

    @llm_completion_callback()
    async def acomplete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponse:
        """Return what `complete` returns, without blocking the event loop."""
        answer = await self._engine.aanswer_from(_choice(self._engine, prompt), **kwargs)
        return CompletionResponse(text=answer.text)

    @llm_completion_callback()
    def stream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponseGen:
        """Return the continuation in pieces, each with all the text so far."""
        for response in self._streamed(_choice(self._engine, prompt), kwargs):
            yield CompletionResponse(text=response.message.content or "", delta=response.delta)

    @llm_completion_callback()
    async def astream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponseAsyncGen:
        """Return what `stream_complete` returns, without blocking the event loop."""

        async def pieces() -> CompletionResponseAsyncGen:
            async for response in self._astreamed(_choice(self._engine, prompt), kwargs):
                yield CompletionResponse(text=response.message.content or "", delta=response.delta)

        return pieces()

    @llm_chat_callback()
    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """Return the answer to the last message."""
        return _said(
            self._engine.answer_from(_choice_for_chat(self._engine, messages), **kwargs).text
        )

    @llm_chat_callback()
    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """Return what `chat` returns, without blocking the event loop."""
        answer = await self._engine.aanswer_from(_choice_for_chat(self._engine, messages), **kwargs)
        return _said(answer.text)

    @llm_chat_callback()
    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseGen:
        """Return the answer in pieces, each with all the text so far."""
        yield from self._streamed(_choice_for_chat(self._engine, messages), kwargs)

    @llm_chat_callback()
    async def astream_chat(
        self, messages: Sequence[ChatMessage], **kwargs: Any
    ) -> ChatResponseAsyncGen:
        """Return what `stream_chat` returns, without blocking the event loop."""
        return self._astreamed(_choice_for_chat(self._engine, messages), kwargs)

    def _streamed(self, choice: Choice, settings: dict[str, Any]) -> ChatResponseGen:
        text = ""
        with self._engine.stream_from(choice, **settings) as stream:
            for piece in stream:
                text += piece
                yield _said(text, piece)

    async def _astreamed(self, choice: Choice, settings: dict[str, Any]) -> ChatResponseAsyncGen:
        text = ""
        async with self._engine.astream_from(choice, **settings) as stream:
            async for piece in stream:
                text += piece
                yield _said(text, piece)


def _said(text: str, delta: str | None = None) -> ChatResponse:
    return ChatResponse(message=ChatMessage(role=MessageRole.ASSISTANT, content=text), delta=delta)


def _choice(engine: AnswerEngine, prompt: str, history: Sequence[dict[str, str]] = ()) -> Choice:
    """Return the choice of mode "base" for a prompt, after earlier messages."""
    query = Query(text=prompt, history=history)
    return engine.choose_from(query, CandidatePool.empty(), mode="base")


def _choice_for_chat(engine: AnswerEngine, messages: Sequence[ChatMessage]) -> Choice:
    """Return the choice for the last message, with the others before it.

    Raises:
        InvalidInputError: If the last message is not the user's, or there is none.
    """
    if not messages or messages[-1].role != MessageRole.USER:
        last = messages[-1].role.value if messages else "none"
        raise InvalidInputError(f"the last message must be the user's, got {last!r}")
    *earlier, question = (message.content or "" for message in messages)
    roles = [message.role.value for message in messages]
    history = [{"role": r, "content": c} for r, c in zip(roles, earlier, strict=False)]
    return _choice(engine, question, history)
