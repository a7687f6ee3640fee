"""The answer engine as a LangChain runnable: mode by mode, whole or in pieces."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

from langchain_core.documents import Document
from langchain_core.runnables import RunnableConfig, RunnableSerializable
from langchain_core.runnables.utils import AddableDict
from langchain_core.vectorstores import VectorStore
from pydantic import AfterValidator, ConfigDict, Field

from langchain_sift.documents import used_documents
from langchain_sift.embedder import embedder_of
from langchain_sift.messages import client_messages
from langchain_sift.sources import FoundDocuments, VectorStoreSource
from langchain_sift.vectors import VectorFiller
from sift_core import Answer, CandidatePool, InvalidInputError
from sift_core.answering import AnswerRequest
from sift_core.answering.chats import as_turns

if TYPE_CHECKING:
    from sift_core.answering import AnswerEngine, LanguageModel

Asked: TypeAlias = str | dict[str, Any]
Answered: TypeAlias = dict[str, Any]
Mode: TypeAlias = Literal[
    "auto", "base", "context", "fine_tune", "both", "learned", "learned_context"
]


def _checked_engine(engine: object) -> Any:
    from sift_core.answering import AnswerEngine  # loads torch, as whoever made an engine has

    if not isinstance(engine, AnswerEngine):
        raise InvalidInputError(
            f"`engine` must be a sift_core.answering.AnswerEngine, got {type(engine).__name__}"
        )
    return engine


Engine: TypeAlias = Annotated[Any, AfterValidator(_checked_engine)]
"""A field that holds an engine. Any, since its class comes with torch."""


def answer_facts(answer: Answer) -> dict[str, Any]:
    """Return what `SIFTAnswer` says about an answer, without its text."""
    facts = answer.as_dict()
    documents, document_ids = used_documents(answer.chunks or CandidatePool.empty())
    deviation = facts["standard_deviation"]
    del facts["text"], facts["chunks"]
    return {
        **facts,
        "variance": None if deviation is None else deviation**2,
        "context": documents,
        "document_ids": document_ids,
        "citations": [asdict(one) for one in answer.citations],
    }


class SIFTAnswer(RunnableSerializable[Asked, Answered]):
    """Answers a question from chosen documents: it reads them, learns from them, or both.

    Takes a question, or a mapping with the question as "input". The mapping may have "context"
    (LangChain documents to choose from), "chat_history" (LangChain messages) and "filter" (the
    store's own kind). Other keys are ignored. Vectors of a given context come from the engine's
    store by id; the texts of other documents are embedded in one batch, with a logged warning.
    Without a context the engine fetches candidates. An empty context is refused in mode "auto",
    unless the engine's policy has `on_off_topic="base"`, and answered in base mode in the others.

    Returns a mapping of:

    - "answer", "mode", "reasons", "finish_reason" ("stop" or "length"), "timings" (seconds by
      stage);
    - "context": the documents used, each once, in order of choice, as copies;
    - "document_ids": their ids, or positions in a given context if they have none;
    - "standard_deviation" and "variance": σ and σ² at the question; without documents, None;
    - "citations": with `cite=True` the marks such as [1] in the answer, as the fields of
      `sift_core.answering.answer.Citation`;
    - "is_refusal": whether the answer says that the documents have nothing on the question;
    - "searched_for": the texts that documents were searched for by. A follow-up is searched for
      with the question before it (the engine's `query_rewriting`);
    - the other facts of `sift_core.Answer.as_dict`, such as "effort" and "stop_reason".

    `stream` gives the answer in pieces, then the rest. They add up to the whole. `.pick("answer")`
    keeps the text.

    A call takes what the engine's `answer` takes: `invoke(question, mode="context", n_select=3)`,
    `invoke(question, queries=["its part", "its other part"])`, `bind(stop=["."])`.
    `configurable_fields(mode=ConfigurableField(id="mode"))` works. Closing a stream frees the
    model. Several answers at once take turns on one model.

    Args:
        engine: A `sift_core.answering.AnswerEngine`.
        mode: "base", "context", "fine_tune", "both", "learned", "learned_context", or "auto", which
            decides for each question.
        generation: Arguments of the engine's `answer` for every call.

    Raises:
        pydantic.ValidationError: On construction (a ValueError), if a setting cannot be used.
        sift_core.InvalidInputError: In a call, if the input cannot be used.
        sift_core.CandidateSourceError: In a call, if the store fails.
        sift_core.AnswerError: In a call, if the model fails; it is as before.

    Example:
        >>> chain = SIFTAnswer(engine=engine, mode="context")
        >>> chain.invoke("When does the ferry sail?")["mode"]
        'context'
    """

    engine: Engine = Field(exclude=True, repr=False)
    mode: Mode = "auto"
    generation: dict[str, Any] = Field(default_factory=dict)

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

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
            **engine_options: Of `AnswerEngine`: `options`, `prompt`, `learning`, ….

        Raises:
            InvalidInputError: If there is no such model, or an argument cannot be used.
            MissingDependencyError: If torch or transformers is missing.
        """
        from sift_core.answering import AnswerEngine, LanguageModel

        source = VectorStoreSource(vectorstore, search_kwargs, async_client=async_client)
        if not isinstance(model, LanguageModel):
            model = LanguageModel.from_pretrained(model)
        engine = AnswerEngine(
            language_model=model, source=source, embedder=embedder_of(vectorstore), **engine_options
        )
        return cls(engine=engine, mode=mode)

    def invoke(self, input: Asked, config: RunnableConfig | None = None, **kwargs: Any) -> Answered:
        """Return the answer; `kwargs` are arguments of the engine's `answer`."""
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
        engine, request = self._asked(given, options)
        return _whole(engine.answer(request))

    async def _aanswer(self, given: object, **options: Any) -> Answered:
        engine, request = self._asked(given, options)
        return _whole(await engine.aanswer(request))

    def _stream(self, inputs: Iterator[Any], **options: Any) -> Iterator[Answered]:
        for given in inputs:
            engine, request = self._asked(given, options)
            with engine.stream(request) as stream:
                for piece in stream:
                    yield AddableDict(answer=piece)
                yield _rest(stream.answer())

    async def _astream(self, inputs: AsyncIterator[Any], **options: Any) -> AsyncIterator[Answered]:
        async for given in inputs:
            engine, request = self._asked(given, options)
            async with await engine.astream(request) as stream:
                async for piece in stream:
                    yield AddableDict(answer=piece)
                yield _rest(await stream.answer())

    def _asked(
        self, given: object, options: Mapping[str, Any]
    ) -> tuple[AnswerEngine, AnswerRequest]:
        """Return what a call asks, and the engine that finds its candidates.

        Raises:
            InvalidInputError: If there is no question, or a part is of another kind.
        """
        if isinstance(given, str):
            given = {"input": given}
        if not isinstance(given, Mapping) or "input" not in given:
            got = sorted(map(str, given)) if isinstance(given, Mapping) else type(given).__name__
            raise InvalidInputError(
                f'the input must be a question or {{"input": question, …}}, got {got}'
            )
        asked = {"mode": self.mode, **self.generation, **options}
        if given.get("chat_history"):
            asked["history"] = as_turns(client_messages(given["chat_history"]))
        if "filter" in given:
            asked["filter"] = given["filter"]
        request = AnswerRequest.of(given["input"], asked)
        if (context := given.get("context")) is None:
            return self.engine, request
        if not isinstance(context, list | tuple) or not all(
            isinstance(document, Document) for document in context
        ):
            raise InvalidInputError(
                f'"context" must be a list of LangChain Documents, got {type(context).__name__}; '
                f"pass documents before they are made into one text"
            )
        source = self.engine.source
        store = source.vectorstore if isinstance(source, VectorStoreSource) else None
        found = FoundDocuments(context, VectorFiller(self.engine.embedder, store))
        return replace(self.engine, source=found), request


def _whole(answer: Answer) -> Answered:
    return {"answer": answer.text, **answer_facts(answer)}


def _rest(answer: Answer) -> AddableDict:
    """Return what follows the pieces of a stream; the text too where it is empty."""
    return AddableDict(({} if answer.text else {"answer": ""}) | answer_facts(answer))
