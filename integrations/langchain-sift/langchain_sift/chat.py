"""The engine's language model as a LangChain chat model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import LangSmithParams
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from pydantic import ConfigDict, Field, model_validator

from langchain_sift.answer import Engine, Mode, answer_facts
from langchain_sift.messages import client_messages
from sift_core import Answer, InvalidInputError
from sift_core.answering import AnswerRequest
from sift_core.answering.chats import chat_request, with_fitting_length

_GREEDY = {"do_sample": False, "temperature": None, "top_p": None, "top_k": None}
_NOT_HERE = ("tools", "tool_choice", "functions", "function_call", "response_format")
# What the engine's answers depend on.
_OF_ENGINE = ("options", "prompt", "generation", "query_rewriting")
_OF_LEARNING = ("effort", "n_steps", "settings")
_OF_REMOTE_MODELS = ("api_key", "max_retries", "streaming", "timeout")


class ChatSIFT(BaseChatModel):
    """A chat model that answers the last message with documents chosen for it.

    The last message is the question. A follow-up is searched for with the question before it (the
    engine's `query_rewriting`). Earlier messages are read before the question. A human's messages
    are of text alone; there are no tools and no structured output. Reasoning and old calls of
    tools are left out. A question that holds a chat and asks for its title is answered in mode
    "base". A model without a chat template reads a single message as it is, and several as lines.

    `response_metadata` of an answer has the keys of `SIFTAnswer` without "answer" and "context",
    and "model_name". `usage_metadata` counts tokens. For one call `invoke` and `stream` take
    `mode`, `max_tokens`, `temperature`, `stop`, and arguments of the engine's `answer` such as
    `filter` and `n_select`.

    Args:
        engine: A `sift_core.answering.AnswerEngine`. Without a source it answers in base mode.
        mode: "base", "context", "fine_tune", "both", "learned", "learned_context" or "auto".
            Default: "auto" if the engine has a source and an embedder, else "base".
        max_tokens: Length of an answer at most; 0 and -1 stand for the default. A length that the
            window does not hold is shortened. Default: the engine's.
        temperature: 0 for the likeliest text, more to sample. Default: the engine's.
        stop: Texts that end an answer. Default: the engine's.
        generation: Other arguments of the engine's `answer` for every call.
        cache: As in any chat model. Default: none if documents are chosen for an answer, since
            LangChain's caches do not notice changes of the store.

    `timeout`, `max_retries`, `api_key` and `streaming` are taken and have no effect. Errors are
    those of `SIFTAnswer`.

    Example:
        >>> chat = ChatSIFT(engine=engine, mode="context", max_tokens=8)
        >>> chat.invoke("When does the ferry sail?").response_metadata["mode"]
        'context'
    """

    engine: Engine = Field(exclude=True, repr=False)
    mode: Mode | None = None
    max_tokens: int | None = None
    temperature: float | None = Field(default=None, ge=0)
    stop: list[str] | None = None
    generation: dict[str, Any] = Field(default_factory=dict)

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _leave_out_what_is_remote(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {name: value for name, value in values.items() if name not in _OF_REMOTE_MODELS}

    @model_validator(mode="after")
    def _set_what_depends_on_the_engine(self) -> ChatSIFT:
        finds_documents = self.engine.source is not None and self.engine.embedder is not None
        if self.mode is None:
            self.mode = "auto" if finds_documents else "base"
        if finds_documents and self.cache is None:
            self.cache = False
        return self

    @property
    def model_name(self) -> str:
        """Name or folder of the language model."""
        language_model: Any = self.engine.language_model
        model = getattr(language_model, "model", None)  # a server's has none
        return str(
            getattr(model, "name_or_path", "") or language_model.name or type(model).__name__
        )

    @property
    def _llm_type(self) -> str:
        return "sift"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        own = ("model_name", "mode", "max_tokens", "temperature", "stop", "generation")
        engine = {name: repr(getattr(self.engine, name)) for name in _OF_ENGINE}
        learning = {name: repr(getattr(self.engine.learning, name)) for name in _OF_LEARNING}
        return {**{name: getattr(self, name) for name in own}, "engine": engine | learning}

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        """Return what LangSmith shows beside a run."""
        return super()._get_ls_params(stop=stop or self.stop, **kwargs)

    def get_token_ids(self, text: str) -> list[int]:
        """Return the tokens of a text, as this model counts them (`trim_messages` does by it)."""
        language_model: Any = self.engine.language_model
        if not hasattr(language_model, "token_ids"):
            raise InvalidInputError(f"the server of {self.model_name!r} gives no tokens")
        ids: list[int] = language_model.token_ids(text)
        return ids

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        """Refuse tools: this model finds its documents itself and answers in words.

        Raises:
            NotImplementedError: Always, as of any chat model without tools.
        """
        raise NotImplementedError(
            "ChatSIFT calls no tools and has no structured output: it answers in words, from the "
            "documents that are chosen for each question. In an agent let a model that calls tools "
            "have SIFT as one: create_retriever_tool(SIFTRetriever(vectorstore=…), name, "
            "description). Have words parsed, `chat | parser`, or give SIFTRetriever's documents "
            "to a model that has structured output"
        )

    def with_structured_output(self, schema: Any, **kwargs: Any) -> Any:
        """Refuse a schema, as `bind_tools` does."""
        return self.bind_tools([schema])

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        answer = self.engine.answer(self._request(messages, stop, kwargs))
        message = AIMessage(content=answer.text, **self._metadata(answer))
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        answer = await self.engine.aanswer(self._request(messages, stop, kwargs))
        message = AIMessage(content=answer.text, **self._metadata(answer))
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        with self.engine.stream(self._request(messages, stop, kwargs)) as stream:
            for piece in stream:
                yield _piece(piece)
            yield _piece("", chunk_position="last", **self._metadata(stream.answer()))

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        request = self._request(messages, stop, kwargs)
        async with await self.engine.astream(request) as stream:
            async for piece in stream:
                yield _piece(piece)
            answer = await stream.answer()
            yield _piece("", chunk_position="last", **self._metadata(answer))

    def _request(
        self, messages: Sequence[BaseMessage], stop: list[str] | None, options: Mapping[str, Any]
    ) -> AnswerRequest:
        """Return what one call asks for; its own options go before the model's.

        Raises:
            InvalidInputError: If the last message is no human's, a human's message is not of
                text alone, or an option cannot be used.
        """
        refused = sorted(name for name in _NOT_HERE if options.get(name))
        if refused:
            raise InvalidInputError(
                f"this model has no use for {refused}: it writes text alone; leave them out"
            )
        own = {name: value for name, value in options.items() if name not in _NOT_HERE}
        asked = {**self.generation, "mode": own.pop("mode", None) or self.mode}
        if (length := own.pop("max_tokens", self.max_tokens)) is not None:
            asked["max_new_tokens"] = length
        if (temperature := own.pop("temperature", self.temperature)) is not None:
            asked |= _sampling(temperature)
        if (ends := self.stop if stop is None else stop) is not None:
            asked["stop"] = ends
        request = chat_request(client_messages(messages), **(asked | own))
        return with_fitting_length(self.engine, request)

    def _metadata(self, answer: Answer) -> dict[str, Any]:
        """Return all facts but the documents themselves, which `SIFTAnswer` returns."""
        facts = answer_facts(answer)
        del facts["context"]
        n_read, n_written = answer.n_prompt_tokens, answer.n_new_tokens
        return {
            "usage_metadata": {
                "input_tokens": n_read,
                "output_tokens": n_written,
                "total_tokens": n_read + n_written,
            },
            "response_metadata": {**facts, "model_name": self.model_name, "model_provider": "sift"},
        }


def _piece(text: str, **fields: Any) -> ChatGenerationChunk:
    return ChatGenerationChunk(message=AIMessageChunk(content=text, **fields))


def _sampling(temperature: float) -> dict[str, Any]:
    """Return a temperature as the engine takes it: 0 for greedy, else sampled."""
    if not temperature >= 0:  # also refuses NaN
        raise InvalidInputError(f"`temperature` must be >= 0, got {temperature}")
    return {"do_sample": True, "temperature": float(temperature)} if temperature else _GREEDY
