"""The answer engine as a LangChain runnable: mode by mode, whole or in pieces."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from langchain_core.runnables import RunnableConfig, RunnableSerializable
from langchain_core.runnables.utils import AddableDict
from langchain_core.vectorstores import VectorStore
from pydantic import AfterValidator, ConfigDict, Field

from langchain_sift.documents import used_documents
from langchain_sift.embedder import LangChainEmbedder, embeddings_of
from langchain_sift.questions import Question, achoose, as_question, choose
from langchain_sift.sources import VectorStoreSource
from sift_core import Answer, CandidatePool, InvalidInputError

if TYPE_CHECKING:
    from sift_core.answering import LanguageModel

Asked: TypeAlias = str | dict[str, Any]
Answered: TypeAlias = dict[str, Any]
Mode: TypeAlias = Literal["auto", "base", "context", "fine_tune", "both"]


def _checked_engine(engine: object) -> Any:
    from sift_core.answering import AnswerEngine  # loads torch, as whoever made an engine has

    if not isinstance(engine, AnswerEngine):
        raise InvalidInputError(
            f"`engine` must be a sift_core.answering.AnswerEngine, got {type(engine).__name__}; "
            f"`AnswerEngine.from_pretrained` or `SIFTAnswer.from_vectorstore` makes one"
        )
    return engine


Engine: TypeAlias = Annotated[Any, AfterValidator(_checked_engine)]
"""A field that holds an engine. Any, since its class comes with torch."""


def answer_facts(answer: Answer) -> dict[str, Any]:
    """Return all that there is to say about an answer, but for its text.

    "mode" and "finish_reason" are words, "reasons" sentences, "timings" seconds by stage.
    "context" holds each document used once, in order of choice, as copies, and "document_ids"
    their ids (positions in a given context, where they have none). "standard_deviation" and
    "variance" are σ and σ² at the question given these documents, None without any.
    """
    used = CandidatePool.empty() if answer.chunks is None else answer.chunks
    documents, document_ids = used_documents(used)
    is_known = not math.isnan(answer.standard_deviation)
    return {
        "mode": answer.mode.value,
        "reasons": list(answer.reasons),
        "context": documents,
        "document_ids": document_ids,
        "standard_deviation": answer.standard_deviation if is_known else None,
        "variance": answer.standard_deviation**2 if is_known else None,
        "timings": dict(answer.timings),
        "finish_reason": answer.finish_reason,
    }


class SIFTAnswer(RunnableSerializable[Asked, Answered]):
    """Answers a question from chosen documents: read, learned from, both, or as fits it.

    Takes a question, or a mapping with the question as "input" and perhaps "context" (LangChain
    documents to choose from; their vectors come from the engine's store by id, those of the rest
    from one batch, with a logged warning; without it the engine fetches candidates), "chat_history"
    (LangChain messages) and "filter" (the store's own kind, for what the engine fetches). Other
    keys are ignored. An empty context is answered in base mode.

    Returns a mapping of "answer", "mode", "reasons", "context" (the documents used, each once, in
    order of choice, as copies), "document_ids", "standard_deviation" and "variance" (at the
    question; None without documents), "timings" (seconds by stage) and "finish_reason" ("stop"
    or "length"). `stream` gives the answer in pieces, then the rest; they add up to the whole.
    `.pick("answer")` keeps the text alone, for `create_retrieval_chain` and its like.

    One call may say otherwise: `invoke(question, mode="context", max_new_tokens=20)`,
    `bind(stop=["."])`, `configurable_fields(mode=ConfigurableField(id="mode"))`. A stream that
    is given up frees the model. Several at once take turns on one model.

    Args:
        engine: A `sift_core.answering.AnswerEngine`.
        mode: "base", "context", "fine_tune", "both", or "auto", which decides a question.
        generation: How to generate, over what the engine says; as in its `answer`.

    Raises:
        pydantic.ValidationError: On construction (a ValueError), if a setting cannot be used.
        sift_core.InvalidInputError: In a call, if the input cannot be used.
        sift_core.CandidateSourceError: In a call, if the store fails.
        sift_core.AnswerError: In a call, if the model fails; it is as before.
    """

    engine: Engine = Field(exclude=True, repr=False)
    mode: Mode = "auto"
    generation: dict[str, Any] = Field(default_factory=dict)

    model_config = ConfigDict(extra="forbid")

    @classmethod
    def from_vectorstore(
        cls,
        vectorstore: VectorStore,
        model: str | Path | LanguageModel,
        *,
        mode: Mode = "auto",
        search_kwargs: Mapping[str, Any] | None = None,
        async_client: Any = None,
        **engine_options: Any,
    ) -> SIFTAnswer:
        """Return a runnable that answers from a LangChain vector store.

        Args:
            vectorstore: A store that knows its embedding model.
            model: Name or folder of a causal LM, or a `sift_core.answering.LanguageModel`.
            mode: As above.
            search_kwargs: Arguments of every search in the store's own words.
            async_client: An `AsyncQdrantClient` of the same server, for the async methods.
            **engine_options: Of `AnswerEngine`: `n_candidates`, `n_context`, `n_steps`, ….

        Raises:
            InvalidInputError: If there is no such model, or an argument cannot be used.
            MissingDependencyError: If torch or transformers is missing.
        """
        from sift_core.answering import AnswerEngine, LanguageModel

        source = VectorStoreSource(vectorstore, search_kwargs, async_client=async_client)
        embedder = LangChainEmbedder(embeddings_of(vectorstore))
        if not isinstance(model, LanguageModel):
            model = LanguageModel.from_pretrained(model)
        engine = AnswerEngine(
            language_model=model, source=source, embedder=embedder, **engine_options
        )
        return cls(engine=engine, mode=mode)

    def invoke(self, input: Asked, config: RunnableConfig | None = None, **kwargs: Any) -> Answered:
        """Return the answer; `kwargs` say for this call what the engine's `answer` takes."""
        return self._call_with_config(self._answer, input, config, **kwargs)

    async def ainvoke(
        self, input: Asked, config: RunnableConfig | None = None, **kwargs: Any
    ) -> Answered:
        """Return what `invoke` returns. Cancelling the task frees the model."""
        return await self._acall_with_config(self._aanswer, input, config, **kwargs)

    def stream(
        self, input: Asked, config: RunnableConfig | None = None, **kwargs: Any
    ) -> Iterator[Answered]:
        """Yield the answer in pieces, then the rest of what `invoke` returns."""
        yield from self._transform_stream_with_config(iter([input]), self._stream, config, **kwargs)

    async def astream(
        self, input: Asked, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[Answered]:
        """Yield what `stream` yields."""

        async def inputs() -> AsyncIterator[Asked]:
            yield input

        pieces: Any = self._atransform_stream_with_config(inputs(), self._astream, config, **kwargs)
        async with aclosing(pieces):  # so that whoever closes this waits for the model
            async for piece in pieces:
                yield piece

    def _answer(self, given: object, **options: Any) -> Answered:
        choice = choose(self.engine, self._question(given, options))
        return _whole(self.engine.answer_from(choice))

    async def _aanswer(self, given: object, **options: Any) -> Answered:
        choice = await achoose(self.engine, self._question(given, options))
        return _whole(await self.engine.aanswer_from(choice))

    def _stream(self, inputs: Iterator[Any], **options: Any) -> Iterator[Answered]:
        for given in inputs:
            choice = choose(self.engine, self._question(given, options))
            with self.engine.stream_from(choice) as stream:
                for piece in stream:
                    yield AddableDict(answer=piece)
                yield _rest(stream.answer())

    async def _astream(self, inputs: AsyncIterator[Any], **options: Any) -> AsyncIterator[Answered]:
        async for given in inputs:
            choice = await achoose(self.engine, self._question(given, options))
            async with self.engine.astream_from(choice) as stream:
                async for piece in stream:
                    yield AddableDict(answer=piece)
                yield _rest(await stream.answer())

    def _question(self, given: object, options: Mapping[str, Any]) -> Question:
        return as_question(given, {"mode": self.mode, **self.generation, **options})


def _whole(answer: Answer) -> Answered:
    return {"answer": answer.text, **answer_facts(answer)}


def _rest(answer: Answer) -> AddableDict:
    """Return what follows the pieces of a stream; the text too where it is empty."""
    return AddableDict(({} if answer.text else {"answer": ""}) | answer_facts(answer))
