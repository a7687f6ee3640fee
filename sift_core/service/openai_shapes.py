"""Answers in OpenAI's form, whole and in pieces, with our own fields under "sift"."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from sift_core.explanation import number_or_none
from sift_core.service.answers import (
    Answering,
    ChoiceEvent,
    DoneEvent,
    Event,
    StepEvent,
    TextEvent,
)
from sift_core.service.errors import openai_error, refusal_of
from sift_core.service.json_bodies import dumped
from sift_core.service.naming import address_of, title_of
from sift_core.types import CandidatePool

KEEP_ALIVE = ": keep-alive\n\n"


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The form of one answer.

    Args:
        model: As it was asked for.
        is_chat: Whether it is a chat's; else a completion's.
        id: The same in all pieces.
        created: Seconds since 1970, the same in all pieces.
    """

    model: str
    is_chat: bool
    id: str = field(default_factory=lambda: uuid4().hex)
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, done: DoneEvent) -> dict[str, Any]:
        """Return an answer in one piece."""
        text = done.answer.text
        if self.is_chat:
            notes = citations(done)
            message = {"role": "assistant", "content": text, "annotations": notes}
            choice: dict[str, Any] = {"index": 0, "message": message}
        else:
            choice = {"index": 0, "text": text}
        choice |= {"logprobs": None, "finish_reason": done.answer.finish_reason}
        return {
            **self._head(is_piece=False),
            "choices": [choice],
            "usage": usage(done),
            "sift": about(done),
        }

    def first(self) -> dict[str, Any] | None:
        """Return what a chat's stream begins with."""
        return self._piece({"role": "assistant", "content": ""}) if self.is_chat else None

    def piece(self, event: Event) -> dict[str, Any]:
        """Return an event as a piece of a stream; all but text are empty ones with "sift"."""
        if isinstance(event, TextEvent):
            return self._piece({"content": event.text}, event.text)
        if isinstance(event, DoneEvent):
            notes = {"annotations": citations(event)} if self.is_chat else {}
            piece = self._piece(notes, finish_reason=event.answer.finish_reason)
            return {**piece, "sift": about(event)}
        return {**self._piece({}), "sift": _progress(event)}

    def last(self, done: DoneEvent) -> dict[str, Any]:
        """Return the piece that has the usage alone."""
        return {**self._head(is_piece=True), "choices": [], "usage": usage(done)}

    def _piece(
        self, delta: dict[str, Any], text: str = "", finish_reason: str | None = None
    ) -> dict[str, Any]:
        content: dict[str, Any] = {"delta": delta} if self.is_chat else {"text": text}
        choice = {"index": 0, **content, "logprobs": None, "finish_reason": finish_reason}
        return {**self._head(is_piece=True), "choices": [choice]}

    def _head(self, *, is_piece: bool) -> dict[str, Any]:
        kind = "text_completion"
        if self.is_chat:
            kind = "chat.completion.chunk" if is_piece else "chat.completion"
        name = f"{'chatcmpl' if self.is_chat else 'cmpl'}-{self.id}"
        return {"id": name, "object": kind, "created": self.created, "model": self.model}


async def events_of(
    answering: Answering, shape: Shape, *, wants_usage: bool, keep_alive_s: float
) -> AsyncIterator[str]:
    """Yield an answer as server-sent events; a comment after a while without any."""
    first = shape.first()
    if first is not None:
        yield _sent(first)
    try:
        while True:
            event = await answering.next(keep_alive_s)
            if event is None:
                yield KEEP_ALIVE
                continue
            yield _sent(shape.piece(event))
            if isinstance(event, DoneEvent):
                break
    except Exception as error:
        yield _sent({"error": openai_error(refusal_of(error))})
        return
    if wants_usage:
        yield _sent(shape.last(event))
    yield "data: [DONE]\n\n"


def _sent(content: dict[str, Any]) -> str:
    return f"data: {dumped(content)}\n\n"


def usage(done: DoneEvent) -> dict[str, int]:
    """Return the tokens that the model read and wrote."""
    n_read, n_written = done.answer.n_prompt_tokens, done.answer.n_new_tokens
    return {
        "prompt_tokens": n_read,
        "completion_tokens": n_written,
        "total_tokens": n_read + n_written,
    }


def citations(done: DoneEvent) -> list[dict[str, Any]]:
    """Return the sources as OpenAI's citations.

    Those that the answer marks are for their marks; where it has none all are for the whole text.
    """
    chunks = done.answer.chunks
    if chunks is None:
        return []
    if done.answer.citations:
        return [
            _citation(chunks, one.position, start_index=one.start, end_index=one.end)
            for one in done.answer.citations
        ]
    sources = dict.fromkeys(
        (address_of(metadata, name), title_of(metadata, name))
        for metadata, name in zip(chunks.metadata, chunks.document_ids, strict=True)
    )
    span = {"start_index": 0, "end_index": len(done.answer.text)}
    return [
        {"type": "url_citation", "url_citation": {"url": url, "title": title, **span}}
        for url, title in sources
    ]


def _citation(chunks: CandidatePool, position: int, **span: int) -> dict[str, Any]:
    metadata, name = chunks.metadata[position], chunks.document_ids[position]
    where = {"url": address_of(metadata, name), "title": title_of(metadata, name)}
    return {"type": "url_citation", "url_citation": {**where, **span}}


def about(done: DoneEvent) -> dict[str, Any]:
    """Return what an answer rests on, and how it came about."""
    answer = done.answer.as_dict()
    after, report = answer["standard_deviation"], answer["fine_tuning"]
    if report is not None:
        report = {key: report[key] for key in ("n_steps", "source", "stop_reason", "losses")}
        report["losses"] = [number_or_none(loss) for loss in report["losses"]]
    return {
        **{key: answer[key] for key in _COPIED},
        "timed_out": done.is_cut,
        # σ² at the question in the paper's setting, in which it is 1 without documents.
        "variance": {"before": 1.0, "after": None if after is None else after**2},
        "sources": [_source(record) for record in answer["chunks"]],
        "fine_tuning": report,
        "timings": {stage: round(seconds, 6) for stage, seconds in answer["timings"].items()},
    }


_COPIED = (
    "mode",
    "reasons",
    "searched_for",
    "citations",
    "is_refusal",
    "unknown_marks",
    "stop_reason",
)


def _source(record: dict[str, Any]) -> dict[str, Any]:
    after, gain = record["variance"], record["gain"]
    return {
        "rank": record["rank"],
        "id": record["document_id"],
        "title": title_of(record["metadata"], record["document_id"]),
        "url": address_of(record["metadata"], record["document_id"]),
        "similarity": record["similarity"],
        "gain": gain,
        "variance_before": after + gain,
        "variance_after": after,
        "near_duplicate_of": record["near_duplicate_of"],
        "is_read": record["is_read"],
        "n_times_learned": record["n_times_learned"],
    }


def _progress(event: ChoiceEvent | StepEvent) -> dict[str, Any]:
    if isinstance(event, StepEvent):
        return {
            "event": "learning",
            "step": event.number,
            "n_steps": event.n_steps,
            "loss": number_or_none(event.loss),
        }
    choice = event.choice
    return {
        "event": "chosen",
        "mode": choice.mode.value,
        "reasons": list(choice.reasons),
        "searched_for": list(choice.searched_for),
        "n_candidates": len(choice.pool),
        "n_read": 0 if choice.read is None else len(choice.read),
        "n_learned": 0 if choice.learned is None else len(choice.learned),
        "is_known": event.is_reused,
    }
