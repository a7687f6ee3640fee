"""The engine's language model as a LangChain chat model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import LangSmithParams
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from pydantic import ConfigDict, model_validator

from langchain_sift.answer_request import achoose, choose
from langchain_sift.chat_result import chat_piece, chat_result, last_chunk
from langchain_sift.chat_settings import ChatSettings


class ChatSIFT(ChatSettings, BaseChatModel):
    """A chat model that answers the last message with documents chosen for it.

    The last message is the question, which documents are chosen for; earlier ones are read
    before it. Messages are of text alone; there are no tools and no structured output. A model
    without a chat template reads a single message as it is, and several as lines.

    `response_metadata` of an answer has "mode", "reasons", "finish_reason", "document_ids",
    "standard_deviation", "variance", "timings" and "model_name"; `usage_metadata` counts
    tokens. `invoke` and `stream` take `mode`, `filter`, `max_tokens`, `temperature`, `stop` and
    what `transformers`' `generate` takes for one call.

    Args:
        engine: A `sift_core.answering.AnswerEngine`; one without a source answers in base
            mode.
        mode: "base", "context", "fine_tune", "both" or "auto"; None for "auto" where the
            engine has a source and an embedder, else "base".
        max_new_tokens: Length of an answer at most, also called `max_tokens`; None for the
            engine's.
        temperature: 0 for the likeliest text, more to sample; None for what the engine says.
        stop: Texts that end an answer; None for what the engine says.
        generation: What else `transformers`' `generate` should take.
        cache: As in any chat model; but where documents are chosen for an answer it must be
            asked for, since LangChain's caches know nothing of the store's contents.

    `timeout`, `max_retries`, `api_key` and `streaming` are taken and have no effect.

    Raises:
        pydantic.ValidationError: On construction, if an argument cannot be used. It is a
            ValueError.
        sift_core.InvalidInputError: In a call, if a message or an option cannot be used.
        sift_core.CandidateSourceError: In a call, if the store fails.
        sift_core.AnswerError: In a call, if the model fails; it is as before.
    """

    model_config = ConfigDict(extra="forbid")  # the last base has its own

    @model_validator(mode="after")
    def _leave_caches_alone(self) -> ChatSIFT:
        if self.chooses and self.cache is None:
            self.cache = False
        return self

    @property
    def _llm_type(self) -> str:
        return "sift"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        own = ("model_name", "default_mode", "max_tokens", "temperature", "stop", "generation")
        engines = ("n_candidates", "n_context", "n_steps", "generation", "settings")
        return {
            **{name: getattr(self, name) for name in own},
            "engine": {name: repr(getattr(self.engine, name)) for name in engines},
        }

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        """Return what LangSmith shows beside a run."""
        length = {"max_tokens": kwargs["max_new_tokens"]} if kwargs.get("max_new_tokens") else {}
        return super()._get_ls_params(stop=stop or self.stop, **{**kwargs, **length})

    def get_token_ids(self, text: str) -> list[int]:
        """Return the tokens of a text, as this model counts them (`trim_messages` does by it)."""
        ids: list[int] = self.engine.language_model.token_ids(text)
        return ids

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        call = self._call(messages, stop, kwargs)
        answer = self.engine.answer_from(
            choose(self.engine, call.request, call.mode), **call.generation
        )
        return chat_result(answer, self.model_name)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        call = self._call(messages, stop, kwargs)
        choice = await achoose(self.engine, call.request, call.mode)
        return chat_result(
            await self.engine.aanswer_from(choice, **call.generation), self.model_name
        )

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        call = self._call(messages, stop, kwargs)
        with self.engine.stream_from(
            choose(self.engine, call.request, call.mode), **call.generation
        ) as stream:
            for piece in stream:
                yield chat_piece(piece)
            yield last_chunk(stream.answer(), self.model_name)

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        call = self._call(messages, stop, kwargs)
        choice = await achoose(self.engine, call.request, call.mode)
        async with self.engine.astream_from(choice, **call.generation) as stream:
            async for piece in stream:
                yield chat_piece(piece)
            yield last_chunk(await stream.answer(), self.model_name)
