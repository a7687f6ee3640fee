"""The text of an answer for which all is chosen: from the engine's model, or from an LLM."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llama_index.core.callbacks import CallbackManager
from llama_index.core.llms import LLM
from llama_index.core.response_synthesizers import (
    BaseSynthesizer,
    ResponseMode,
    get_response_synthesizer,
)
from llama_index.core.types import RESPONSE_TEXT_TYPE

from llama_index.postprocessor.sift.synthesizer_report import (
    chosen_chunks,
    complete_report,
    report_of,
)
from sift_core import AnswerMode

if TYPE_CHECKING:
    from sift_core.answering import AnswerEngine, AnswerStream, AsyncAnswerStream, Choice


def readers_of(
    llm: LLM | None, *, streaming: bool, callback_manager: CallbackManager
) -> dict[AnswerMode, BaseSynthesizer]:
    """Return LlamaIndex's synthesizers for the modes that `llm` answers in; none without one."""
    if llm is None:
        return {}
    kinds = {
        AnswerMode.BASE: ResponseMode.GENERATION,
        AnswerMode.CONTEXT: ResponseMode.COMPACT,
    }
    return {
        mode: get_response_synthesizer(
            llm=llm, response_mode=kind, streaming=streaming, callback_manager=callback_manager
        )
        for mode, kind in kinds.items()
    }


@dataclass(frozen=True, kw_only=True, eq=False)
class AnswerWriter:
    """Writes answers.

    Args:
        engine: Answers in the modes that have no reader.
        readers: LlamaIndex's synthesizers by mode.
        streaming: Whether to return generators.
    """

    engine: AnswerEngine
    readers: Mapping[AnswerMode, BaseSynthesizer]
    streaming: bool

    @classmethod
    def of(
        cls,
        engine: AnswerEngine,
        llm: LLM | None,
        *,
        streaming: bool,
        callback_manager: CallbackManager,
    ) -> AnswerWriter:
        """Return the writer in which `llm`, if given, answers in the modes context and base."""
        readers = readers_of(llm, streaming=streaming, callback_manager=callback_manager)
        return cls(engine=engine, readers=readers, streaming=streaming)

    def report_of(self, choice: Choice) -> dict[str, Any]:
        """Return what `response.metadata` says before an answer is there."""
        return report_of(choice, model="llm" if choice.mode in self.readers else "engine")

    def write(
        self, choice: Choice, report: dict[str, Any], settings: dict[str, Any]
    ) -> RESPONSE_TEXT_TYPE:
        """Return the text, or a generator of its pieces; complete `report` at its end.

        Args:
            choice: Of mode and nodes.
            report: As `report_of` makes it; changed in place.
            settings: How to generate, for this answer alone.
        """
        if choice.mode in self.readers:
            texts = chosen_chunks(choice).texts
            reader = self.readers[choice.mode]
            return reader.get_response(choice.query.text, text_chunks=texts, **settings)
        if self.streaming:
            return _pieces(self.engine.stream_from(choice, **settings), report)
        answer = self.engine.answer_from(choice, **settings)
        complete_report(report, answer)
        return answer.text

    async def awrite(
        self, choice: Choice, report: dict[str, Any], settings: dict[str, Any]
    ) -> RESPONSE_TEXT_TYPE:
        """Return what `write` returns, without blocking the event loop."""
        if choice.mode in self.readers:
            texts = chosen_chunks(choice).texts
            reader = self.readers[choice.mode]
            return await reader.aget_response(choice.query.text, text_chunks=texts, **settings)
        if self.streaming:
            return _apieces(self.engine.astream_from(choice, **settings), report)
        answer = await self.engine.aanswer_from(choice, **settings)
        complete_report(report, answer)
        return answer.text


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
