"""The synthesizer: nodes in, an answer by context, by fine-tuning, or by choice per query out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from llama_index.core import VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.base.response.schema import RESPONSE_TYPE, Response
from llama_index.core.callbacks import CallbackManager, CBEventType, EventPayload
from llama_index.core.instrumentation import (  # type: ignore[attr-defined]  # implicit re-export
    get_dispatcher,
)
from llama_index.core.instrumentation.events.synthesis import (
    SynthesizeEndEvent,
    SynthesizeStartEvent,
)
from llama_index.core.llms import LLM
from llama_index.core.prompts.mixin import PromptDictType
from llama_index.core.response_synthesizers import (
    BaseSynthesizer,
    ResponseMode,
    get_response_synthesizer,
)
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.core.types import RESPONSE_TEXT_TYPE

from llama_index.postprocessor.sift.answer_report import (
    chosen_chunks,
    complete_report,
    empty_report,
    nodes_of,
    report_of,
)
from llama_index.postprocessor.sift.engine_llm import EngineLLM
from llama_index.postprocessor.sift.nodes import distinct_nodes, node_pool
from llama_index.postprocessor.sift.query_bundle import checked_mode, wanted_mode
from llama_index.postprocessor.sift.tracking import track_retrievals
from llama_index.postprocessor.sift.vectors import VectorLookup, Vectors
from sift_core import AnswerMode, CandidatePool, Query

if TYPE_CHECKING:
    from sift_core.answering import AnswerEngine, AnswerStream, AsyncAnswerStream, Choice

_dispatcher = get_dispatcher(__name__)

# How LlamaIndex's own synthesizers answer with an LLM that was given.
_READING = {AnswerMode.BASE: ResponseMode.GENERATION, AnswerMode.CONTEXT: ResponseMode.COMPACT}


class SIFTSynthesizer(BaseSynthesizer):
    """Answers from the nodes that say most together, in the mode that suits the query.

    Give the query engine much to choose from and no reranker: `similarity_top_k=200`. What an
    answer was made of is in `response.source_nodes` and `response.metadata["sift"]`: "mode",
    "model", "reasons", "variance" (σ² at the query given the nodes used) and
    "standard_deviation", "node_ids", "timings" in seconds, "finish_reason", token counts. In a
    streamed response the last three, and the time it took, are there when the stream is over;
    they are None where `llm` answered, and all is None or empty where nothing was retrieved.

    Vectors come from the store that was just searched, as in `SIFTReranker`. Several queries at
    once take turns on the engine's model; those that are awaited block no event loop. Its prompts
    are those of LlamaIndex's synthesizers, where `llm` is given.

    Args:
        engine: With a language model; its own source and embedder are not used.
        mode: "auto", "base", "context", "fine_tune" or "both", unless a query says otherwise
            (`SIFTQueryBundle`, or `mode=` of `synthesize`).
        llm: Answers in the modes context and base instead of the engine's model, with
            LlamaIndex's own prompts (response mode "compact").
        streaming: Whether responses are streams.
        use_scores, index: As in `SIFTReranker`.
        embed_model: As in `SIFTReranker`; also for nodes that a query engine makes itself.
        callback_manager: LlamaIndex's.
        empty_response: The answer where nothing was retrieved, unless the mode is "base".

    Raises:
        InvalidInputError: If there is no such mode.
    """

    def __init__(
        self,
        engine: AnswerEngine,
        *,
        mode: str = "auto",
        llm: LLM | None = None,
        streaming: bool = False,
        use_scores: bool | None = None,
        index: VectorStoreIndex | None = None,
        embed_model: BaseEmbedding | None = None,
        callback_manager: CallbackManager | None = None,
        empty_response: str | None = None,
    ) -> None:
        super().__init__(
            llm=EngineLLM(engine),  # a given one has readers of its own
            callback_manager=callback_manager,
            streaming=streaming,
        )
        self._empty_response = empty_response or "Empty Response"  # LlamaIndex's since 0.14.15
        self._mode = checked_mode(mode)
        self._engine = engine
        self._use_scores = use_scores
        self._lookup = VectorLookup(index=index, embed_model=embed_model)
        self._readers: dict[AnswerMode, BaseSynthesizer] = {}
        if llm is not None:
            self._readers = {
                each: get_response_synthesizer(
                    llm=llm,
                    response_mode=kind,
                    streaming=streaming,
                    callback_manager=self._callback_manager,
                )
                for each, kind in _READING.items()
            }
        track_retrievals()

    @property
    def mode(self) -> str:
        """How queries are answered that do not say it themselves."""
        return self._mode

    @mode.setter
    def mode(self, mode: str) -> None:
        self._mode = checked_mode(mode)

    def synthesize(
        self,
        query: str | QueryBundle,
        nodes: list[NodeWithScore],
        additional_source_nodes: Sequence[NodeWithScore] | None = None,
        *,
        mode: str | None = None,
        **response_kwargs: Any,
    ) -> RESPONSE_TYPE:
        """Return the answer to a query from some of `nodes`.

        Args:
            query: The question.
            nodes: What was retrieved, most relevant first.
            additional_source_nodes: Added to the response's source nodes.
            mode: For this query alone.
            **response_kwargs: How to generate, for this query alone: what `transformers`'
                `generate` takes, `max_new_tokens` and `stop`; or what the `llm`'s prompts take.

        Raises:
            InvalidInputError: If there is no such mode, or the question is too long.
            CandidateSourceError: If the vector store fails.
            AnswerError: If the model fails; it is as before.
        """
        bundle = QueryBundle(query) if isinstance(query, str) else query
        with self._reported(bundle) as synthesis:
            wanted = wanted_mode(bundle, default=self._mode, of_call=mode)
            if not nodes and wanted != AnswerMode.BASE:
                synthesis.response = self._nothing_found(self._empty_stream())
            else:
                choice = self._choose(bundle, nodes, wanted)
                report = self._report_of(choice)
                text = self._write(choice, report, response_kwargs)
                synthesis.response = self._response(choice, text, report, additional_source_nodes)
        return synthesis.response

    async def asynthesize(
        self,
        query: str | QueryBundle,
        nodes: list[NodeWithScore],
        additional_source_nodes: Sequence[NodeWithScore] | None = None,
        *,
        mode: str | None = None,
        **response_kwargs: Any,
    ) -> RESPONSE_TYPE:
        """Return what `synthesize` returns, without blocking the event loop."""
        bundle = QueryBundle(query) if isinstance(query, str) else query
        with self._reported(bundle) as synthesis:
            wanted = wanted_mode(bundle, default=self._mode, of_call=mode)
            if not nodes and wanted != AnswerMode.BASE:
                synthesis.response = self._nothing_found(self._empty_astream())
            else:
                choice = await self._achoose(bundle, nodes, wanted)
                report = self._report_of(choice)
                text = await self._awrite(choice, report, response_kwargs)
                synthesis.response = self._response(choice, text, report, additional_source_nodes)
        return synthesis.response

    def get_response(
        self, query_str: str, text_chunks: Sequence[str], **response_kwargs: Any
    ) -> RESPONSE_TEXT_TYPE:
        """Return the text of an answer from texts, which are embedded, or its pieces."""
        nodes = [NodeWithScore(node=TextNode(text=text)) for text in text_chunks]
        choice = self._choose(QueryBundle(query_str), nodes, self._mode)
        return self._write(choice, self._report_of(choice), response_kwargs)

    async def aget_response(
        self, query_str: str, text_chunks: Sequence[str], **response_kwargs: Any
    ) -> RESPONSE_TEXT_TYPE:
        """Return what `get_response` returns, without blocking the event loop."""
        nodes = [NodeWithScore(node=TextNode(text=text)) for text in text_chunks]
        choice = await self._achoose(QueryBundle(query_str), nodes, self._mode)
        return await self._awrite(choice, self._report_of(choice), response_kwargs)

    def _choose(self, query: QueryBundle, nodes: Sequence[NodeWithScore], mode: str) -> Choice:
        """Return the choice among `nodes`, perhaps none; mode "base" looks at no node."""
        if not nodes or mode == AnswerMode.BASE:
            return self._chosen(query, [], None, mode)
        distinct = distinct_nodes(nodes)
        return self._chosen(query, distinct, self._lookup.vectors(query, distinct), mode)

    async def _achoose(
        self, query: QueryBundle, nodes: Sequence[NodeWithScore], mode: str
    ) -> Choice:
        """Return what `_choose` does; stores and models are awaited, the rest is in a thread."""
        if not nodes or mode == AnswerMode.BASE:
            return self._chosen(query, [], None, mode)
        distinct = distinct_nodes(nodes)
        vectors = await self._lookup.avectors(query, distinct)
        return await asyncio.to_thread(self._chosen, query, distinct, vectors, mode)

    def _chosen(
        self, query: QueryBundle, nodes: Sequence[NodeWithScore], vectors: Vectors | None, mode: str
    ) -> Choice:
        if vectors is None:
            bare = Query(text=query.query_str)
            return self._engine.choose_from(bare, CandidatePool.empty(), mode=mode)
        pool = node_pool(
            vectors.query, nodes, vectors.nodes, use_scores=self._use_scores, with_texts=True
        )
        embedded = Query(text=query.query_str, embedding=vectors.query)
        return self._engine.choose_from(embedded, pool, mode=mode)

    def _report_of(self, choice: Choice) -> dict[str, Any]:
        return report_of(choice, model="llm" if choice.mode in self._readers else "engine")

    def _write(
        self, choice: Choice, report: dict[str, Any], settings: dict[str, Any]
    ) -> RESPONSE_TEXT_TYPE:
        """Return the text, or a generator of its pieces; complete `report` at its end.

        Args:
            choice: Of mode and nodes.
            report: As `_report_of` makes it; changed in place.
            settings: How to generate, for this answer alone.
        """
        if choice.mode in self._readers:
            texts = chosen_chunks(choice).texts
            reader = self._readers[choice.mode]
            return reader.get_response(choice.query.text, text_chunks=texts, **settings)
        if self._streaming:
            return _pieces(self._engine.stream_from(choice, **settings), report)
        answer = self._engine.answer_from(choice, **settings)
        complete_report(report, answer)
        return answer.text

    async def _awrite(
        self, choice: Choice, report: dict[str, Any], settings: dict[str, Any]
    ) -> RESPONSE_TEXT_TYPE:
        """Return what `_write` returns, without blocking the event loop."""
        if choice.mode in self._readers:
            texts = chosen_chunks(choice).texts
            reader = self._readers[choice.mode]
            return await reader.aget_response(choice.query.text, text_chunks=texts, **settings)
        if self._streaming:
            return _apieces(self._engine.astream_from(choice, **settings), report)
        answer = await self._engine.aanswer_from(choice, **settings)
        complete_report(report, answer)
        return answer.text

    def _response(
        self,
        choice: Choice,
        text: RESPONSE_TEXT_TYPE,
        report: dict[str, Any],
        additional: Sequence[NodeWithScore] | None,
    ) -> RESPONSE_TYPE:
        """Return the response; a later change of what is in `report` shows in its metadata."""
        writer = self._readers.get(choice.mode, self)  # a reader may give objects
        response = writer._prepare_response_output(text, [*nodes_of(choice), *(additional or [])])
        response.metadata = {**(response.metadata or {}), **report}
        return response

    def _nothing_found(self, stream: RESPONSE_TEXT_TYPE) -> RESPONSE_TYPE:
        """Return LlamaIndex's answer where there is nothing to answer from."""
        text = stream if self._streaming else self._empty_response
        response = self._prepare_response_output(text, source_nodes=[])
        response.metadata = empty_report()
        return response

    def _empty_stream(self) -> Generator[str, None, None]:
        yield self._empty_response

    async def _empty_astream(self) -> AsyncGenerator[str, None]:
        yield self._empty_response

    @contextmanager
    def _reported(self, query: QueryBundle) -> Iterator[_Synthesis]:
        """Report the query, yield a place for the response, and report what the body put there.

        A streamed response is reported when it begins, as LlamaIndex's own synthesizers do. A
        body that raises has no end event.
        """
        synthesis = _Synthesis()
        _dispatcher.event(SynthesizeStartEvent(query=query))
        payload: dict[str, Any] = {EventPayload.QUERY_STR: query.query_str}
        with self._callback_manager.event(CBEventType.SYNTHESIZE, payload=payload) as event:
            yield synthesis
            event.on_end(payload={EventPayload.RESPONSE: synthesis.response})
        _dispatcher.event(SynthesizeEndEvent(query=query, response=synthesis.response))

    def _get_prompts(self) -> PromptDictType:
        return {}

    def _update_prompts(self, prompts: PromptDictType) -> None:
        """Have no prompts of its own."""

    def _get_prompt_modules(self) -> dict[str, Any]:
        return {f"{mode.value}_reader": reader for mode, reader in self._readers.items()}


@dataclass(kw_only=True, eq=False)
class _Synthesis:
    """What a synthesis gives."""

    response: RESPONSE_TYPE = field(default_factory=lambda: Response(None))


# Generators, since LlamaIndex tells streams by that type.
def _pieces(stream: AnswerStream, report: dict[str, Any]) -> Generator[str, None, None]:
    with stream:
        yield from stream
        complete_report(report, stream.answer())


async def _apieces(stream: AsyncAnswerStream, report: dict[str, Any]) -> AsyncGenerator[str, None]:
    async with stream:
        async for piece in stream:
            yield piece
        complete_report(report, await stream.answer())
