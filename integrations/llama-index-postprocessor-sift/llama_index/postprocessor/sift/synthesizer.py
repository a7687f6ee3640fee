"""The synthesizer: nodes in, an answer by context, by fine-tuning, or by choice per query out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llama_index.core import VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.base.response.schema import RESPONSE_TYPE
from llama_index.core.callbacks import CallbackManager
from llama_index.core.llms import LLM
from llama_index.core.schema import NodeWithScore, QueryBundle

from llama_index.postprocessor.sift.query_bundle import as_bundle, wanted_mode
from llama_index.postprocessor.sift.retriever_tracking import track_retrievals
from llama_index.postprocessor.sift.synthesizer_answer import AnswerWriter
from llama_index.postprocessor.sift.synthesizer_base import ReportingSynthesizer
from llama_index.postprocessor.sift.synthesizer_choice import NodeChoice
from llama_index.postprocessor.sift.synthesizer_events import reported
from llama_index.postprocessor.sift.synthesizer_llm import EngineLLM
from llama_index.postprocessor.sift.vector_lookup import VectorLookup
from sift_core import AnswerMode

if TYPE_CHECKING:
    from sift_core.answering import AnswerEngine


class SIFTSynthesizer(ReportingSynthesizer):
    """Answers from the nodes that say most together, in the mode that suits the query.

    Give the query engine much to choose from and no reranker: `similarity_top_k=200`. What an
    answer was made of is in `response.source_nodes` and `response.metadata["sift"]`: "mode",
    "model", "reasons", "variance" (σ² at the query given the nodes used) and
    "standard_deviation", "node_ids", "timings" in seconds, "finish_reason", token counts. In a
    streamed response the last three, and the time it took, are there when the stream is over;
    they are None where `llm` answered, and all is None or empty where nothing was retrieved.

    Vectors come from the store that was just searched, as in `SIFTReranker`. Several queries at
    once take turns on the engine's model; those that are awaited block no event loop.

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
        self.mode = mode
        self._nodes = NodeChoice(
            engine=engine,
            lookup=VectorLookup(index=index, embed_model=embed_model),
            use_scores=use_scores,
        )
        self._writer = AnswerWriter.of(
            engine, llm, streaming=streaming, callback_manager=self._callback_manager
        )
        track_retrievals()

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
        bundle = as_bundle(query)
        with reported(bundle, self._callback_manager) as synthesis:
            wanted = wanted_mode(bundle, default=self.mode, of_call=mode)
            if not nodes and wanted != AnswerMode.BASE:
                synthesis.response = self._nothing_found(self._empty_stream())
            else:
                choice = self._nodes.choose(bundle, nodes, wanted)
                report = self._writer.report_of(choice)
                text = self._writer.write(choice, report, response_kwargs)
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
        bundle = as_bundle(query)
        with reported(bundle, self._callback_manager) as synthesis:
            wanted = wanted_mode(bundle, default=self.mode, of_call=mode)
            if not nodes and wanted != AnswerMode.BASE:
                synthesis.response = self._nothing_found(self._empty_astream())
            else:
                choice = await self._nodes.achoose(bundle, nodes, wanted)
                report = self._writer.report_of(choice)
                text = await self._writer.awrite(choice, report, response_kwargs)
                synthesis.response = self._response(choice, text, report, additional_source_nodes)
        return synthesis.response
