"""OpenAI's completions: prompts that go on as they stand, in the style of the documents."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from fastapi import Response

from sift_core.answering.completing import CompletionPrompt, prepare_completion
from sift_core.answering.request import AnswerRequest
from sift_core.errors import InvalidInputError
from sift_core.service.answers import Answering, fit_to_window
from sift_core.service.errors import RefusedError
from sift_core.service.openai_answers import Begin, EventStream, Shape, whole
from sift_core.service.openai_models import CompletionRequest, ModeName
from sift_core.service.openai_requests import request_fields, session_key
from sift_core.service.state import Service
from sift_core.types import AnswerMode

if TYPE_CHECKING:
    from sift_core.answering import AnswerEngine


async def completed(service: Service, body: CompletionRequest, mode: ModeName | None) -> Response:
    """Return the texts that go on with the prompts, whole or as a stream.

    Args:
        service: Has the engine.
        body: The request.
        mode: What the model's name says. Default: as `prepare_completion`.

    Raises:
        RefusedError: If a prompt is empty, a field cannot be used, or the queue is full.
    """
    prompts = body.prompts()
    begins: list[Begin] = []
    for number, prompt in enumerate(prompts):
        engine, request = await service.in_thread(
            "check", partial(_prepared, service, body, mode, prompt, number)
        )
        request = await fit_to_window(service, engine, request)
        key = session_key(body.sift, request, "completion", body.sift.path or "")
        begins.append(partial(Answering, service, engine, request, key))
    shape = Shape(model=body.model, is_chat=False)
    shapes = shape.others(prompts if body.echo else [""] * len(prompts))
    if body.stream:
        return EventStream(begins, shapes, wants_usage=body.wants_usage)
    return await whole(begins, shapes)


def _prepared(
    service: Service, body: CompletionRequest, mode: ModeName | None, text: str, number: int
) -> tuple[AnswerEngine, AnswerRequest]:
    """Return the engine and the request for one of the prompts."""
    engine = service.engine
    assert engine is not None  # or the model would have no name
    named = body.mode(mode)
    fields = request_fields(service, body, seed_after=number)
    generation = fields.pop("generation")
    if not fields["queries"]:
        del fields["queries"]
    length = fields["max_new_tokens"]
    if length is not None and length < 1:  # any length
        del fields["max_new_tokens"]
    try:
        prompt = CompletionPrompt(before=text, after=body.suffix or "", path=body.sift.path)
        return prepare_completion(
            engine,
            prompt,
            mode=None if named is AnswerMode.AUTO else named,
            n_prompt_tokens=body.sift.max_prompt_tokens or engine.language_model.window,
            **fields,
            **generation,
        )
    except InvalidInputError as error:
        raise RefusedError(str(error), param="prompt") from error
