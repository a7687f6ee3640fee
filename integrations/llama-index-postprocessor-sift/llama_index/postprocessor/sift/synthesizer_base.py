"""What surrounds the synthesizer: answers from texts alone, responses with reports, prompts."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Sequence
from typing import TYPE_CHECKING, Any

from llama_index.core.base.response.schema import RESPONSE_TYPE
from llama_index.core.prompts.mixin import PromptDictType
from llama_index.core.response_synthesizers import BaseSynthesizer
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.core.types import RESPONSE_TEXT_TYPE

from llama_index.postprocessor.sift.query_bundle import checked_mode
from llama_index.postprocessor.sift.synthesizer_answer import AnswerWriter
from llama_index.postprocessor.sift.synthesizer_choice import NodeChoice
from llama_index.postprocessor.sift.synthesizer_report import empty_report, nodes_of

if TYPE_CHECKING:
    from sift_core.answering import Choice


class ReportingSynthesizer(BaseSynthesizer):
    """A synthesizer whose responses say how they came about. Its prompts are its readers'."""

    _nodes: NodeChoice
    _writer: AnswerWriter
    _mode: str
    _empty_response: str

    @property
    def mode(self) -> str:
        """How queries are answered that do not say it themselves."""
        return self._mode

    @mode.setter
    def mode(self, mode: str) -> None:
        self._mode = checked_mode(mode)

    def get_response(
        self, query_str: str, text_chunks: Sequence[str], **response_kwargs: Any
    ) -> RESPONSE_TEXT_TYPE:
        """Return the text of an answer from texts, which are embedded, or its pieces."""
        nodes = [NodeWithScore(node=TextNode(text=text)) for text in text_chunks]
        choice = self._nodes.choose(QueryBundle(query_str), nodes, self._mode)
        return self._writer.write(choice, self._writer.report_of(choice), response_kwargs)

    async def aget_response(
        self, query_str: str, text_chunks: Sequence[str], **response_kwargs: Any
    ) -> RESPONSE_TEXT_TYPE:
        """Return what `get_response` returns, without blocking the event loop."""
        nodes = [NodeWithScore(node=TextNode(text=text)) for text in text_chunks]
        choice = await self._nodes.achoose(QueryBundle(query_str), nodes, self._mode)
        return await self._writer.awrite(choice, self._writer.report_of(choice), response_kwargs)

    def _response(
        self,
        choice: Choice,
        text: RESPONSE_TEXT_TYPE,
        report: dict[str, Any],
        additional: Sequence[NodeWithScore] | None,
    ) -> RESPONSE_TYPE:
        """Return the response; a later change of what is in `report` shows in its metadata."""
        writer = self._writer.readers.get(choice.mode, self)  # a reader may give objects
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

    def _get_prompts(self) -> PromptDictType:
        return {}

    def _update_prompts(self, prompts: PromptDictType) -> None:
        """Have no prompts of its own."""

    def _get_prompt_modules(self) -> dict[str, Any]:
        return {f"{mode.value}_reader": reader for mode, reader in self._writer.readers.items()}
