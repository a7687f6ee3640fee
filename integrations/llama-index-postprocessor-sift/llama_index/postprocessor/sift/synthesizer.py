"""The synthesizer: nodes in, an answer by context, by fine-tuning, or by choice per query out."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

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
from llama_index.postprocessor.sift.nodes import METADATA_KEY, distinct_nodes, takes_several
from llama_index.postprocessor.sift.tracking import track_retrievals
from llama_index.postprocessor.sift.vectors import VectorLookup
from sift_core import Answer, AnswerMode, CandidatePool, InvalidInputError
from sift_core.plugins import run_blocking

if TYPE_CHECKING:
    from sift_core.answering import AnswerEngine, AnswerStream, AsyncAnswerStream, Choice

_dispatcher = get_dispatcher(__name__)

# The choice, the text or a generator of its pieces, and the report, which the pieces complete.
Written: TypeAlias = tuple["Choice", RESPONSE_TEXT_TYPE, dict[str, Any]]

# How LlamaIndex's own synthesizers answer with an LLM that was given.
_READING = {AnswerMode.BASE: ResponseMode.GENERATION, AnswerMode.CONTEXT: ResponseMode.COMPACT}


@dataclass
class SIFTQueryBundle(QueryBundle):
    """A `QueryBundle` with a mode for this query alone. Default: the synthesizer's mode.

    Chat engines and query transformations write queries of their own, which have no mode.

    Example:
        >>> SIFTQueryBundle("How do bees find home?", mode="fine_tune").mode
        'fine_tune'
    """

    mode: str | None = None


class SIFTSynthesizer(BaseSynthesizer):
    """Answers from the nodes that say most together, in the mode that suits the query.

    Give the query engine many candidates and no reranker: `similarity_top_k=200`. Vectors come from
    the store that was just searched, and several `embedding_strs` each have their turn, as in
    `SIFTReranker`. Several queries at once take turns on the engine's model. Those that are awaited
    do not block the event loop.

    The nodes that were used are in `response.source_nodes`. `response.metadata["sift"]` has "mode",
    "model", "reasons", "variance" (σ² at the query given these nodes), "standard_deviation",
    "node_ids", "timings" in seconds, "finish_reason", "n_prompt_tokens", "n_new_tokens",
    "citations" (fields of `sift_core.answering.answer.Citation`, if it cites), and "is_refusal"
    (whether the answer is that the nodes have nothing on the query). The last five are None or
    empty until a stream is over, and if `llm` answered. All are if nothing was retrieved.

    Args:
        engine: Has the language model and the options of the choice. Its own source and embedder
            are not used.
        mode: "auto", "base", "context", "fine_tune", "both", "learned" or "learned_context". A
            `SIFTQueryBundle` may have its own. Default: "auto".
        llm: Answers in the modes "context" and "base", with LlamaIndex's own prompts (response
            mode "compact"). Default: the engine's model.
        streaming: Whether responses are streams. Default: no.
        use_scores, index: As in `SIFTReranker`.
        embed_model: As in `SIFTReranker`; also for nodes that a query engine makes itself.
        callback_manager: LlamaIndex's. Default: `Settings.callback_manager`.

    Raises:
        InvalidInputError: If there is no such mode.

    Example:
        >>> answers = index.as_query_engine(
        ...     llm=EngineLLM(engine),
        ...     similarity_top_k=4,
        ...     response_synthesizer=SIFTSynthesizer(engine, mode="context", index=index),
        ... )
        >>> answers.query("When does the ferry sail?").metadata["sift"]["mode"]
        'context'
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
        self._lookup = VectorLookup(
            index=index,
            embed_model=embed_model,
            apart=takes_several(engine.options.selector),
            use_scores=use_scores,
            for_llm=True,
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
        return run_blocking(
            self._answered(query, nodes, additional_source_nodes, response_kwargs, is_awaited=False)
        )

    async def asynthesize(
        self,
        query: str | QueryBundle,
        nodes: list[NodeWithScore],
        additional_source_nodes: Sequence[NodeWithScore] | None = None,
        **response_kwargs: Any,
    ) -> RESPONSE_TYPE:
        """Return what `synthesize` returns, without blocking the event loop."""
        return await self._answered(
            query, nodes, additional_source_nodes, response_kwargs, is_awaited=True
        )

    def get_response(
        self, query_str: str, text_chunks: Sequence[str], **response_kwargs: Any
    ) -> RESPONSE_TEXT_TYPE:
        """Return the text of an answer from texts, which are embedded, or its pieces."""
        nodes, bundle = _nodes_of(text_chunks), QueryBundle(query_str)
        return run_blocking(self._written(bundle, nodes, response_kwargs, is_awaited=False))[1]

    async def aget_response(
        self, query_str: str, text_chunks: Sequence[str], **response_kwargs: Any
    ) -> RESPONSE_TEXT_TYPE:
        """Return what `get_response` returns, without blocking the event loop."""
        nodes, bundle = _nodes_of(text_chunks), QueryBundle(query_str)
        return (await self._written(bundle, nodes, response_kwargs, is_awaited=True))[1]

    async def _answered(
        self,
        query: str | QueryBundle,
        nodes: list[NodeWithScore],
        additional: Sequence[NodeWithScore] | None,
        settings: dict[str, Any],
        *,
        is_awaited: bool,
    ) -> RESPONSE_TYPE:
        """Return a response, whose metadata shows a later change of the report."""
        bundle = QueryBundle(query) if isinstance(query, str) else query
        if not nodes and self._mode_of(bundle) is not AnswerMode.BASE:
            nothing = bundle, nodes
            empty = (
                await super().asynthesize(*nothing) if is_awaited else super().synthesize(*nothing)
            )
            return _with_report(empty, _report())
        with self._reported(bundle) as reported:
            choice, text, report = await self._written(
                bundle, nodes, settings, is_awaited=is_awaited
            )
            writer = self._reader_of(choice) or self  # a reader may give objects
            used = {id(node): node for node in choice.used.items}  # each once
            sources = [*used.values(), *(additional or [])]
            response = _with_report(writer._prepare_response_output(text, sources), report)
            reported.append(response)
        return response

    def _mode_of(self, bundle: QueryBundle) -> AnswerMode:
        """Return the mode of a query: its own, else the synthesizer's."""
        mode = bundle.mode if isinstance(bundle, SIFTQueryBundle) else None
        return _checked_mode(self.mode if mode is None else mode)

    async def _written(
        self,
        bundle: QueryBundle,
        nodes: Sequence[NodeWithScore],
        settings: dict[str, Any],
        *,
        is_awaited: bool,
    ) -> Written:
        """Return the choice among `nodes` and what was written of it; "base" looks at no node.

        If awaited, the choice runs in a thread.
        """
        mode, engine = self._mode_of(bundle), self._engine
        candidates = [] if mode is AnswerMode.BASE else distinct_nodes(nodes)
        pool, query = await self._lookup.candidates(bundle, candidates, is_awaited=is_awaited)
        # Of several texts the query has the first.
        asked = replace(query, text=bundle.query_str), pool
        if is_awaited:
            choice = await asyncio.to_thread(engine.choose_from, *asked, mode=mode)
        else:
            choice = engine.choose_from(*asked, mode=mode)
        if (reader := self._reader_of(choice)) is not None:
            given = {"query_str": bundle.query_str, "text_chunks": choice.used.texts, **settings}
            text = (
                await reader.aget_response(**given) if is_awaited else reader.get_response(**given)
            )
            return choice, text, _report(choice, "llm")
        if self._streaming:
            report = _report(choice, "engine")
            if is_awaited:
                return choice, _apieces(engine.astream_from(choice, **settings), report), report
            return choice, _pieces(engine.stream_from(choice, **settings), report), report
        if is_awaited:
            answer = await engine.aanswer_from(choice, **settings)
        else:
            answer = engine.answer_from(choice, **settings)
        return choice, answer.text, _report(answer, "engine")

    def _reader_of(self, choice: Choice) -> BaseSynthesizer | None:
        """Return what answers with the given LLM; None if the engine answers."""
        return None if choice.refuses else self._readers.get(choice.mode)

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
        modes = [each.value for each in AnswerMode]
        raise InvalidInputError(f"`mode` must be one of {modes}, got {mode!r}") from None


def _with_report(response: RESPONSE_TYPE, report: dict[str, Any]) -> RESPONSE_TYPE:
    response.metadata = {**(response.metadata or {}), METADATA_KEY: report}
    return response


def _nodes_of(texts: Sequence[str]) -> list[NodeWithScore]:
    return [NodeWithScore(node=TextNode(text=text)) for text in texts]


def _report(made: Choice | Answer | None = None, model: str | None = None) -> dict[str, Any]:
    """Return what a response says of itself.

    Args:
        made: An answer, or the choice where the engine has none, or not yet. Default: nothing was
            retrieved.
        model: Who writes, "engine" or "llm".
    """
    chunks, deviation = CandidatePool.empty(), math.nan
    answer = made if isinstance(made, Answer) else None
    if isinstance(made, Answer):
        chunks, deviation = made.chunks or chunks, made.standard_deviation
    elif made is not None:
        chunks, deviation = made.used, made.standard_deviation(made.used)
    is_known = not math.isnan(deviation)
    return {
        "mode": made.mode.value if made else None,
        "model": model,
        "reasons": list(made.reasons) if made else ["nothing was retrieved"],
        "variance": deviation**2 if is_known else None,
        "standard_deviation": deviation if is_known else None,
        "node_ids": list(dict.fromkeys(chunks.document_ids)),
        "timings": dict(made.timings) if made else {},
        "finish_reason": answer.finish_reason if answer else None,
        "n_prompt_tokens": answer.n_prompt_tokens if answer else None,
        "n_new_tokens": answer.n_new_tokens if answer else None,
        "citations": [asdict(one) for one in answer.citations] if answer else [],
        "is_refusal": answer.is_refusal if answer else False,
    }


# LlamaIndex recognises streams by the type of a generator.
def _pieces(stream: AnswerStream, report: dict[str, Any]) -> Generator[str, None, None]:
    with stream:
        yield from stream
        report |= _report(stream.answer(), "engine")


async def _apieces(stream: AsyncAnswerStream, report: dict[str, Any]) -> AsyncGenerator[str, None]:
    async with stream:
        async for piece in stream:
            yield piece
        report |= _report(await stream.answer(), "engine")
