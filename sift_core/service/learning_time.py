"""POST /learning-time: how long learning for a question would take, before anybody waits for it."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from fastapi import APIRouter

from sift_core.answering.chats import chat_request
from sift_core.answering.cost_model import CostModel, seconds_at
from sift_core.answering.request import AnswerRequest
from sift_core.answering.streams import run_in_worker
from sift_core.service.answers import fit_to_window
from sift_core.service.errors import RefusedError
from sift_core.service.http import JsonAnswer, JsonRoute
from sift_core.service.openai_models import ChatRequest
from sift_core.service.openai_requests import request_fields
from sift_core.service.state import Service
from sift_core.types import AnswerMode, CandidatePool

if TYPE_CHECKING:
    from sift_core.answering import AnswerEngine, Choice, LanguageModel

MEASURE_S = 0.0  # aimed at beyond the least that has to be measured: somebody waits


def learning_time_router(service: Service) -> APIRouter:
    """Return the route."""
    router = APIRouter(route_class=JsonRoute, default_response_class=JsonAnswer, tags=["openai"])
    measuring = asyncio.Lock()
    measured: list[CostModel] = []

    async def costs_of(engine: AnswerEngine) -> CostModel:
        calibrated = getattr(engine.policy, "cost_model", None)
        if isinstance(calibrated, CostModel):
            return calibrated
        async with measuring:
            if not measured:
                measured.append(await _measured(engine))
        return measured[0]

    @router.post("/learning-time", operation_id="learning_time")
    async def learning_time(body: ChatRequest) -> dict[str, Any]:
        """Estimate the seconds of mode "fine_tune" for the last of the messages.

        It is the calibration's cost model, or else speeds that are measured once, in some seconds.
        """
        engine = service.engine
        if engine is None or not engine.can_learn:
            raise RefusedError("this service has no model that learns", status=404)
        fields = request_fields(service, body)
        asked = chat_request(body.turns(), mode=AnswerMode.FINE_TUNE, **fields)
        request = await fit_to_window(service, engine, asked)
        service.answers.enter()
        try:
            async with service.answers.turn(service.settings.timeout_s):
                choice = await engine.achoose(request)
                costs = await costs_of(engine)
        finally:
            service.answers.leave()
        # Cutting texts into tokens takes time.
        return await service.in_thread("check", partial(_estimate, engine, request, choice, costs))

    return router


async def _measured(engine: AnswerEngine) -> CostModel:
    """Return the speeds of the model as they are now."""
    model = cast("LanguageModel", engine.language_model)
    settings = engine.learning.settings_of(engine.learning.effort)
    return await run_in_worker(
        model.submit, lambda _: CostModel.measure(model, settings, aim_s=MEASURE_S)
    )


def _estimate(
    engine: AnswerEngine, request: AnswerRequest, choice: Choice, costs: CostModel
) -> dict[str, Any]:
    """Return the answer of the route."""
    answerer = engine.answerer_for(request)
    texts = choice.chunks(choice.learned).texts
    prompt = answerer.prompt_for(choice.query, CandidatePool.empty())
    steps = [seconds_at(costs.step, engine.language_model.n_tokens(text)) for text in texts]
    reading_s = seconds_at(costs.adapted_prefill, answerer.n_prompt_tokens(prompt))
    return {
        "n_steps": len(texts),
        "n_chunks": len(set(texts)),
        "learning_s": costs.setup_s + sum(steps) if texts else 0.0,
        "longest_answer_s": reading_s + answerer.max_new_tokens * costs.adapted_new_token_s,
    }
