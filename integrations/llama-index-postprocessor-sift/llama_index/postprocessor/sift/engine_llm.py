"""The engine's language model as an LLM of LlamaIndex, for whatever needs one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from llama_index.core.base.llms.generic_utils import (
    astream_chat_response_to_completion_response,
    prompt_to_messages,
    stream_chat_response_to_completion_response,
)
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
from llama_index.core.llms.llm import LLM

if TYPE_CHECKING:
    from sift_core.answering import AnswerEngine, AnswerRequest


class EngineLLM(LLM):
    """The base model of an `AnswerEngine`, without documents and without fine-tuning.

    For engines that need some LLM where no other is at hand. Several answers at once take turns.
    The async methods return the same without blocking the event loop; streams give pieces, each
    with all the text so far.

    Args:
        engine: Whose language model answers, with its settings for generation.

    Raises:
        InvalidInputError: In a call, if prompt and answer do not fit into the window, or the
            last message is not the user's.
        AnswerError: In a call, if the model fails.

    Example:
        >>> llm = EngineLLM(engine)
        >>> len(llm.complete("The ferry sails at").text) > 0
        True
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
        model: Any = self._engine.language_model
        own = getattr(model, "model", None)  # a server's has none
        return LLMMetadata(
            context_window=model.window,
            num_output=self._engine.max_new_tokens,
            is_chat_model=True,
            model_name=getattr(own, "name_or_path", "") or model.name or type(own).__name__,
        )

    @llm_chat_callback()
    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """Return the answer to the last message."""
        return _said(self._engine.answer(_request(self._engine, messages, kwargs)).text)

    @llm_chat_callback()
    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """Return the answer to the last message."""
        return _said((await self._engine.aanswer(_request(self._engine, messages, kwargs))).text)

    @llm_chat_callback()
    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseGen:
        """Return the answer in pieces."""
        return self._streamed(messages, kwargs)

    @llm_chat_callback()
    async def astream_chat(
        self, messages: Sequence[ChatMessage], **kwargs: Any
    ) -> ChatResponseAsyncGen:
        """Return the answer in pieces."""
        return self._astreamed(messages, kwargs)

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """Return the answer to a prompt."""
        request = _request(self._engine, prompt_to_messages(prompt), kwargs)
        return CompletionResponse(text=self._engine.answer(request).text)

    @llm_completion_callback()
    async def acomplete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponse:
        """Return the answer to a prompt."""
        request = _request(self._engine, prompt_to_messages(prompt), kwargs)
        return CompletionResponse(text=(await self._engine.aanswer(request)).text)

    @llm_completion_callback()
    def stream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponseGen:
        """Return the answer to a prompt in pieces."""
        pieces = self._streamed(prompt_to_messages(prompt), kwargs)
        return stream_chat_response_to_completion_response(pieces)

    @llm_completion_callback()
    async def astream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponseAsyncGen:
        """Return the answer to a prompt in pieces."""
        pieces = self._astreamed(prompt_to_messages(prompt), kwargs)
        return astream_chat_response_to_completion_response(pieces)

    def _streamed(
        self, messages: Sequence[ChatMessage], settings: dict[str, Any]
    ) -> ChatResponseGen:
        text = ""
        with self._engine.stream(_request(self._engine, messages, settings)) as stream:
            for piece in stream:
                text += piece
                yield _said(text, piece)

    async def _astreamed(
        self, messages: Sequence[ChatMessage], settings: dict[str, Any]
    ) -> ChatResponseAsyncGen:
        text = ""
        async with await self._engine.astream(_request(self._engine, messages, settings)) as stream:
            async for piece in stream:
                text += piece
                yield _said(text, piece)


def _said(text: str, delta: str | None = None) -> ChatResponse:
    return ChatResponse(message=ChatMessage(role=MessageRole.ASSISTANT, content=text), delta=delta)


def _request(
    engine: AnswerEngine, messages: Sequence[ChatMessage], settings: Mapping[str, Any]
) -> AnswerRequest:
    """Return the request to answer the last message after the others, in mode "base".

    Raises:
        InvalidInputError: If the last message is not the user's, or one cannot be read.
    """
    from sift_core.answering.chats import chat_request, with_fitting_length

    said = [
        {"role": each.role.value, "content": [_block(block) for block in each.blocks]}
        for each in messages
    ]
    settings = {"mode": "base", **settings}
    if "max_tokens" in settings:  # as LlamaIndex's other models call it
        settings["max_new_tokens"] = settings.pop("max_tokens")
    request = chat_request(said, **settings)
    return with_fitting_length(engine, request)


def _block(block: Any) -> dict[str, Any]:
    """Return a block of a message as OpenAI's clients send it."""
    return {"type": block.block_type, "text": getattr(block, "text", None)}
