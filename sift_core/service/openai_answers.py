"""The form of answers in OpenAI's dialect, whole and as events."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias
from uuid import uuid4

from fastapi.responses import StreamingResponse

from sift_core.answering.answer import Answer
from sift_core.explanation import number_or_none
from sift_core.service.answers import Answering, Done
from sift_core.service.errors import openai_error, refusal_of
from sift_core.service.http import JsonAnswer, dumped
from sift_core.service.metadata import title_and_url

KEEP_ALIVE = ": keep-alive\n\n"
KEEP_ALIVE_S = 5.0  # between comments in a stream that is silent otherwise
_COPIED = (
    "mode reasons searched_for citations is_refusal unknown_marks stop_reason missing_names"
    " left_out"
).split()
_COPIED_OF_SOURCES = ("near_duplicate_of", "is_read", "n_times_learned")

Begin: TypeAlias = Callable[[], Answering]
"""Begins an answer, when it is its turn."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The form of one answer: a chat's or a completion's. All pieces have the same `id`.

    Args:
        model: As the client named it.
        is_chat: Whether it is a chat's.
        echo: What stands before a completion's text. Default: nothing.
        index: Of the choice. Default: 0.
        ignored: Names of fields of the request that were not used. Default: none.
    """

    model: str
    is_chat: bool
    echo: str = ""
    index: int = 0
    ignored: tuple[str, ...] = ()
    id: str = field(default_factory=lambda: uuid4().hex)
    created: int = field(default_factory=lambda: int(time.time()))

    def others(self, echoes: Sequence[str]) -> list[Shape]:
        """Return the forms of several choices of one answer."""
        return [replace(self, echo=echo, index=i) for i, echo in enumerate(echoes)]

    def head(self, *, is_piece: bool) -> dict[str, Any]:
        """Return what stands before the choices."""
        kind = "text_completion"
        if self.is_chat:
            kind = "chat.completion.chunk" if is_piece else "chat.completion"
        name = f"{'chatcmpl' if self.is_chat else 'cmpl'}-{self.id}"
        return {"id": name, "object": kind, "created": self.created, "model": self.model}

    def opening(self) -> dict[str, Any] | None:
        """Return the first piece of a stream, before anything is written; None without one."""
        if self.is_chat:
            return self.piece({"role": "assistant", "content": ""})
        return self.piece({"content": self.echo}) if self.echo else None

    def piece(self, delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        """Return a piece of a stream; a completion's has nothing but the text of the delta."""
        content = {"delta": delta} if self.is_chat else {"text": delta.get("content", "")}
        choice = {"index": self.index, **content, "logprobs": None, "finish_reason": finish_reason}
        return {**self.head(is_piece=True), "choices": [choice]}

    def choice(self, answer: Answer) -> dict[str, Any]:
        """Return a choice in one piece."""
        content: dict[str, Any] = {"text": self.echo + answer.text}
        if self.is_chat:
            message = {"role": "assistant", "content": answer.text, **_beside_content(answer)}
            content = {"message": message}
        ended = {"logprobs": None, "finish_reason": answer.finish_reason}
        return {"index": self.index, **content, **ended}


async def whole(begins: Sequence[Begin], shapes: Sequence[Shape]) -> JsonAnswer:
    """Return one or more answers in one piece; with several each choice has its own "sift"."""
    choices: list[dict[str, Any]] = []
    about: list[dict[str, Any]] = []
    usage: Counter[str] = Counter()
    for begin, shape in zip(begins, shapes, strict=True):
        answering = begin()
        try:
            done = await answering.done()
        finally:
            answering.close()
        choices.append(shape.choice(done.answer))
        about.append(_about(done, shape))
        usage.update(_usage(done.answer))
    if len(choices) > 1:
        choices = [{**one, "sift": own} for one, own in zip(choices, about, strict=True)]
    head = shapes[0].head(is_piece=False)
    return JsonAnswer({**head, "choices": choices, "usage": dict(usage), "sift": about[0]})


class EventStream(StreamingResponse):
    """Answers as server-sent events, one after another; their work ends with the stream.

    Args:
        begins: Begin the answers. The first begins here, so that a full queue is refused.
        shapes: Their forms.
        wants_usage: Whether the tokens of all answers follow them.

    Raises:
        RefusedError: If the queue is full.
    """

    def __init__(
        self, begins: Sequence[Begin], shapes: Sequence[Shape], *, wants_usage: bool
    ) -> None:
        self._answering = begins[0]()
        super().__init__(
            self._events(begins, shapes, wants_usage=wants_usage),
            media_type="text/event-stream",
            headers={"cache-control": "no-cache", "x-accel-buffering": "no"},
        )

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Send the events."""
        try:
            await self.stream_response(send)
        finally:
            self._answering.close()

    async def _events(
        self, begins: Sequence[Begin], shapes: Sequence[Shape], *, wants_usage: bool
    ) -> AsyncIterator[str]:
        """Yield the events; a comment after a while without any."""
        usage: Counter[str] = Counter()
        try:
            for i, shape in enumerate(shapes):
                if (opening := shape.opening()) is not None:
                    yield _sent(opening)
                if i:
                    self._answering = begins[i]()
                while not isinstance(event := await self._answering.next(KEEP_ALIVE_S), Done):
                    if event is None:
                        yield KEEP_ALIVE
                    elif isinstance(event, str):
                        yield _sent(shape.piece({"content": event}))
                    else:
                        yield _sent({**shape.piece({}), "sift": event})
                rest, reason = _beside_content(event.answer), event.answer.finish_reason
                yield _sent({**shape.piece(rest, reason), "sift": _about(event, shape)})
                usage.update(_usage(event.answer))
            if wants_usage:
                yield _sent({**shapes[0].head(is_piece=True), "choices": [], "usage": dict(usage)})
        except Exception as error:
            yield _sent({"error": openai_error(refusal_of(error))})
        else:
            yield "data: [DONE]\n\n"


def _sent(content: dict[str, Any]) -> str:
    return f"data: {dumped(content)}\n\n"


def _usage(answer: Answer) -> dict[str, int]:
    """Return the tokens that the model read and wrote."""
    n_read, n_written = answer.n_prompt_tokens, answer.n_new_tokens
    return {
        "prompt_tokens": n_read,
        "completion_tokens": n_written,
        "total_tokens": n_read + n_written,
    }


def _beside_content(answer: Answer) -> dict[str, Any]:
    """Return the other fields of a message: the sources, and thoughts where there are any."""
    thoughts = {"reasoning_content": answer.thoughts} if answer.thoughts else {}
    return {"annotations": _citations(answer), **thoughts}


def _citations(answer: Answer) -> list[dict[str, Any]]:
    """Return the sources as OpenAI's citations.

    Those that the answer marks are for their marks; where it has none all are for the whole text.
    """
    if answer.chunks is None:
        return []
    named = [
        title_and_url(metadata, name)
        for metadata, name in zip(answer.chunks.metadata, answer.chunks.document_ids, strict=True)
    ]
    cited = [
        {**named[one.position], "start_index": one.start, "end_index": one.end}
        for one in answer.citations
    ]
    if not cited:
        span = {"start_index": 0, "end_index": len(answer.text)}
        cited = [{**one, **span} for i, one in enumerate(named) if one not in named[:i]]
    return [{"type": "url_citation", "url_citation": one} for one in cited]


def _about(done: Done, shape: Shape) -> dict[str, Any]:
    """Return the documents of an answer, how it came about, and what was ignored, if anything."""
    answer = done.answer.as_dict()
    after, report = answer["standard_deviation"], answer["fine_tuning"]
    if report is not None:
        report = {key: report[key] for key in ("n_steps", "source", "stop_reason", "losses")}
        report["losses"] = [number_or_none(loss) for loss in report["losses"]]
    sources = [
        {
            "rank": record["rank"],
            "id": record["document_id"],
            **title_and_url(record["metadata"], record["document_id"]),
            "similarity": record["similarity"],
            "gain": record["gain"],
            "variance_before": record["variance"] + record["gain"],
            "variance_after": record["variance"],
            **{name: record[name] for name in _COPIED_OF_SOURCES},
        }
        for record in answer["chunks"]
    ]
    return {
        **{name: answer[name] for name in _COPIED},
        "timed_out": done.is_cut,
        "nearest": [
            {**one, **title_and_url(one["metadata"], one["document_id"])}
            for one in answer["nearest"]
        ],
        **({"ignored": list(shape.ignored)} if shape.ignored else {}),
        # σ² at the question in the paper's setting, in which it is 1 without documents.
        "variance": {"before": 1.0, "after": None if after is None else after**2},
        "sources": sources,
        "fine_tuning": report,
        "timings": {stage: round(seconds, 6) for stage, seconds in answer["timings"].items()},
    }
