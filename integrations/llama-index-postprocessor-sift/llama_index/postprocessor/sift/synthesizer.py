"""The synthesizer: nodes in, an answer by context, by fine-tuning, or by choice per query out."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from llama_index.core import VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.base.response.schema import RESPONSE_TYPE
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

from llama_index.postprocessor.sift.engine_llm import EngineLLM
from llama_index.postprocessor.sift.nodes import (
    METADATA_KEY,
    NODE,
    distinct_nodes,
    node_pool,
    query_of,
    takes_several,
)
from llama_index.postprocessor.sift.tracking import track_retrievals
from llama_index.postprocessor.sift.vectors import VectorLookup, Vectors
from sift_core import (
    Answer,
    AnswerMode,
    CandidatePool,
    InvalidInputError,
    Query,
    posterior_variances,
)

if TYPE_CHECKING:
    from sift_core.answering import AnswerEngine, AnswerStream, AsyncAnswerStream, Choice

_dispatcher = get_dispatcher(__name__)

# How LlamaIndex's own synthesizers answer with an LLM that was given.
_READING = {AnswerMode.BASE: ResponseMode.GENERATION, AnswerMode.CONTEXT: ResponseMode.COMPACT}


@dataclass
class SIFTQueryBundle(QueryBundle):
    """A `QueryBundle` with a mode for this query alone; None for the synthesizer's.

    Chat engines and query transformations write queries of their own, which have no mode.

    Example:
        >>> SIFTQueryBundle("How do bees find home?", mode="fine_tune").mode
        'fine_tune'
    """

    mode: str | None = None


class SIFTSynthesizer(BaseSynthesizer):
    """Answers from the nodes that say most together, in the mode that suits the query.

    Give the query engine much to choose from and no reranker: `similarity_top_k=200`. What an
    answer was made of is in `response.source_nodes` and `response.metadata["sift"]`: "mode",
    "model", "reasons", "variance" (σ² at the query given the nodes used) and
    "standard_deviation", "node_ids", "timings" in seconds, "finish_reason", "n_prompt_tokens",
    "n_new_tokens", "citations", the marks that an engine with `cite` asks for (the fields of
    `sift_core.Citation`), and "is_refusal", whether the answer is that the nodes do not tell. The
    last five are None or empty until a stream is over and where `llm`
    answered; all is where nothing was retrieved, unless the mode is "base".

    Vectors come from the store that was just searched, as in `SIFTReranker`, where several
    `embedding_strs` are told too. Several queries at
    once take turns on the engine's model; those that are awaited block no event loop.

    Args:
        engine: With a language model; its own source and embedder are not used.
        mode: "auto", "base", "context", "fine_tune", "both" or "merged", unless a query says
            otherwise (`SIFTQueryBundle`).
        llm: Answers in the modes context and base instead of the engine's model, with
            LlamaIndex's own prompts (response mode "compact").
        streaming: Whether responses are streams.
        use_scores, index: As in `SIFTReranker`.
        embed_model: As in `SIFTReranker`; also for nodes that a query engine makes itself.
        callback_manager: LlamaIndex's.

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
    ) -> None:
        super().__init__(
            llm=EngineLLM(engine),  # a given one has readers of its own
            callback_manager=callback_manager,
            streaming=streaming,
        )
        self.mode: str = _checked_mode(mode)
        self._engine = engine
        self._use_scores = use_scores
        self._lookup = VectorLookup(
            index=index, embed_model=embed_model, apart=takes_several(engine.context_selector)
        )
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

    def synthesize(
        self,
        query: str | QueryBundle,
        nodes: list[NodeWithScore],
        additional_source_nodes: Sequence[NodeWithScore] | None = None,
        **response_kwargs: Any,
    ) -> RESPONSE_TYPE:
        """Return the answer to a query from some of `nodes`, most relevant first.

        Args:
            query: The question.
            nodes: What was retrieved.
            additional_source_nodes: Added to the response's source nodes.
            **response_kwargs: How to generate, for this query alone: what `AnswerEngine.answer`
                takes; or what the `llm`'s prompts take.

        Raises:
            InvalidInputError: If there is no such mode, or the question is too long.
            CandidateSourceError: If the vector store fails.
            AnswerError: If the model fails; it is as before.
        """
        bundle, wanted = self._asked(query)
        if not nodes and wanted is not AnswerMode.BASE:
            return _with_report(super().synthesize(bundle, []), _empty_report())
        with self._reported(bundle) as reported:
            choice = self._choose(bundle, nodes, wanted)
            text, report = self._write(choice, response_kwargs)
            reported.append(self._response(choice, text, report, additional_source_nodes))
        return reported[0]

    async def asynthesize(
        self,
        query: str | QueryBundle,
        nodes: list[NodeWithScore],
        additional_source_nodes: Sequence[NodeWithScore] | None = None,
        **response_kwargs: Any,
    ) -> RESPONSE_TYPE:
        """Return what `synthesize` returns, without blocking the event loop."""
        bundle, wanted = self._asked(query)
        if not nodes and wanted is not AnswerMode.BASE:
            return _with_report(await super().asynthesize(bundle, []), _empty_report())
        with self._reported(bundle) as reported:
            choice = await self._achoose(bundle, nodes, wanted)
            text, report = await self._awrite(choice, response_kwargs)
            reported.append(self._response(choice, text, report, additional_source_nodes))
        return reported[0]

    def get_response(
        self, query_str: str, text_chunks: Sequence[str], **response_kwargs: Any
    ) -> RESPONSE_TEXT_TYPE:
        """Return the text of an answer from texts, which are embedded, or its pieces."""
        bundle, wanted = self._asked(query_str)
        choice = self._choose(bundle, _nodes_of(text_chunks), wanted)
        return self._write(choice, response_kwargs)[0]

    async def aget_response(
        self, query_str: str, text_chunks: Sequence[str], **response_kwargs: Any
    ) -> RESPONSE_TEXT_TYPE:
        """Return what `get_response` returns, without blocking the event loop."""
        bundle, wanted = self._asked(query_str)
        choice = await self._achoose(bundle, _nodes_of(text_chunks), wanted)
        return (await self._awrite(choice, response_kwargs))[0]

    def _asked(self, query: str | QueryBundle) -> tuple[QueryBundle, AnswerMode]:
        """Return the query, and its own mode or else the default."""
        bundle = QueryBundle(query) if isinstance(query, str) else query
        mode = bundle.mode if isinstance(bundle, SIFTQueryBundle) else None
        return bundle, _checked_mode(self.mode if mode is None else mode)

    def _choose(
        self, query: QueryBundle, nodes: Sequence[NodeWithScore], mode: AnswerMode
    ) -> Choice:
        """Return the choice among `nodes`, perhaps none; mode "base" looks at no node."""
        distinct = [] if mode is AnswerMode.BASE else distinct_nodes(nodes)
        vectors = self._lookup.vectors(query, distinct) if distinct else None
        return self._chosen(query, distinct, vectors, mode)

    async def _achoose(
        self, query: QueryBundle, nodes: Sequence[NodeWithScore], mode: AnswerMode
    ) -> Choice:
        """Return what `_choose` does; stores and models are awaited, the rest is in a thread."""
        distinct = [] if mode is AnswerMode.BASE else distinct_nodes(nodes)
        vectors = await self._lookup.avectors(query, distinct) if distinct else None
        return await asyncio.to_thread(self._chosen, query, distinct, vectors, mode)

    def _chosen(
        self,
        query: QueryBundle,
        nodes: Sequence[NodeWithScore],
        found: Vectors | None,
        mode: AnswerMode,
    ) -> Choice:
        if found is None:
            bare = Query(text=query.query_str)
            return self._engine.choose_from(bare, CandidatePool.empty(), mode=mode)
        pool = node_pool(
            found.query,
            nodes,
            found.nodes,
            node_ids=found.node_ids,
            use_scores=self._use_scores,
            with_texts=True,
        )
        embedded = replace(query_of(query, found.query), text=query.query_str)
        return self._engine.choose_from(embedded, pool, mode=mode)

    def _write(
        self, choice: Choice, settings: dict[str, Any]
    ) -> tuple[RESPONSE_TEXT_TYPE, dict[str, Any]]:
        """Return the text, or a generator of its pieces that completes the report at its end."""
        if choice.mode in self._readers and not choice.refuses:
            reader, texts = self._readers[choice.mode], _chunks(choice).texts
            text = reader.get_response(choice.query.text, text_chunks=texts, **settings)
            return text, _report_of(choice, "llm")
        if self._streaming:
            report = _report_of(choice, "engine")
            return _pieces(self._engine.stream_from(choice, **settings), report), report
        answer = self._engine.answer_from(choice, **settings)
        return answer.text, _report_of_answer(answer)

    async def _awrite(
        self, choice: Choice, settings: dict[str, Any]
    ) -> tuple[RESPONSE_TEXT_TYPE, dict[str, Any]]:
        """Return what `_write` returns, without blocking the event loop."""
        if choice.mode in self._readers and not choice.refuses:
            reader, texts = self._readers[choice.mode], _chunks(choice).texts
            text = await reader.aget_response(choice.query.text, text_chunks=texts, **settings)
            return text, _report_of(choice, "llm")
        if self._streaming:
            report = _report_of(choice, "engine")
            return _apieces(self._engine.astream_from(choice, **settings), report), report
        answer = await self._engine.aanswer_from(choice, **settings)
        return answer.text, _report_of_answer(answer)

    def _response(
        self,
        choice: Choice,
        text: RESPONSE_TEXT_TYPE,
        report: dict[str, Any],
        additional: Sequence[NodeWithScore] | None,
    ) -> RESPONSE_TYPE:
        """Return the response; a later change of `report` shows in its metadata."""
        writer = self._readers.get(choice.mode, self)  # a reader may give objects
        rows = dict.fromkeys(_positions(choice))  # each node once
        nodes = [choice.pool.metadata[i][NODE] for i in rows]
        response = writer._prepare_response_output(text, [*nodes, *(additional or [])])
        return _with_report(response, report)

    @contextmanager
    def _reported(self, query: QueryBundle) -> Iterator[list[RESPONSE_TYPE]]:
        """Report the query, yield an empty list, and report the response that the body put there.

        A streamed response is reported when it begins, as LlamaIndex's own synthesizers do. A
        body that raises has no end event.
        """
        reported: list[RESPONSE_TYPE] = []
        _dispatcher.event(SynthesizeStartEvent(query=query))
        payload: dict[str, Any] = {EventPayload.QUERY_STR: query.query_str}
        with self._callback_manager.event(CBEventType.SYNTHESIZE, payload=payload) as event:
            yield reported
            event.on_end(payload={EventPayload.RESPONSE: reported[0]})
        _dispatcher.event(SynthesizeEndEvent(query=query, response=reported[0]))

    def _get_prompts(self) -> PromptDictType:
        return {}

    def _update_prompts(self, prompts: PromptDictType) -> None:
        """Have no prompts of its own."""

    def _get_prompt_modules(self) -> dict[str, Any]:
        return {f"{mode.value}_reader": reader for mode, reader in self._readers.items()}


def _checked_mode(mode: str) -> AnswerMode:
    try:
        return AnswerMode(mode)
    except ValueError:
        known = [each.value for each in AnswerMode]
        raise InvalidInputError(f"`mode` must be one of {known}, got {mode!r}") from None


def _empty_report() -> dict[str, Any]:
    """Return what `response.metadata["sift"]` says where nothing was retrieved."""
    return {
        "mode": None,
        "model": None,
        "reasons": ["nothing was retrieved"],
        "variance": None,
        "standard_deviation": None,
        "node_ids": [],
        "timings": {},
        "finish_reason": None,  # this and the following are known with an answer of the engine
        "n_prompt_tokens": None,
        "n_new_tokens": None,
        "citations": [],
        "is_refusal": False,
    }


def _with_report(response: RESPONSE_TYPE, report: dict[str, Any]) -> RESPONSE_TYPE:
    response.metadata = {**(response.metadata or {}), METADATA_KEY: report}
    return response


def _nodes_of(texts: Sequence[str]) -> list[NodeWithScore]:
    return [NodeWithScore(node=TextNode(text=text)) for text in texts]


def _positions(choice: Choice) -> list[int]:
    """Return rows of the pool: what is read, then what is learned from, repeats kept."""
    chosen = [selection for selection in (choice.read, choice.learned) if selection is not None]
    return [i for selection in chosen for i in selection.positions.tolist()]


def _chunks(choice: Choice) -> CandidatePool:
    return choice.pool.take(_positions(choice))


def _report_of(choice: Choice, model: str) -> dict[str, Any]:
    """Return what a response says of itself while, or where, the engine has no answer."""
    chunks = _chunks(choice)
    deviation = math.nan
    if len(chunks):
        variances = posterior_variances(choice.query.vectors, chunks.embeddings)
        deviation = float(variances[-1] / (1 + len(choice.query.also))) ** 0.5
    return _empty_report() | _said_by(choice, model, chunks, deviation)


def _report_of_answer(answer: Answer) -> dict[str, Any]:
    """Return what a response says of an answer of the engine."""
    chunks = CandidatePool.empty() if answer.chunks is None else answer.chunks
    return _said_by(answer, "engine", chunks, answer.standard_deviation) | {
        "finish_reason": answer.finish_reason,
        "n_prompt_tokens": answer.n_prompt_tokens,
        "n_new_tokens": answer.n_new_tokens,
        "citations": [asdict(one) for one in answer.citations],
        "is_refusal": answer.is_refusal,
    }


def _said_by(
    made: Choice | Answer, model: str, chunks: CandidatePool, deviation: float
) -> dict[str, Any]:
    """Return what a choice and an answer both say; `deviation` is NaN without chunks."""
    is_known = not math.isnan(deviation)
    return {
        "mode": made.mode.value,
        "model": model,
        "reasons": list(made.reasons),
        "variance": deviation**2 if is_known else None,
        "standard_deviation": deviation if is_known else None,
        "node_ids": list(dict.fromkeys(chunks.document_ids)),
        "timings": dict(made.timings),
    }


# Generators, since LlamaIndex tells streams by that type.
def _pieces(stream: AnswerStream, report: dict[str, Any]) -> Generator[str, None, None]:
    with stream:
        yield from stream
        report |= _report_of_answer(stream.answer())


async def _apieces(stream: AsyncAnswerStream, report: dict[str, Any]) -> AsyncGenerator[str, None]:
    async with stream:
        async for piece in stream:
            yield piece
        report |= _report_of_answer(await stream.answer())
