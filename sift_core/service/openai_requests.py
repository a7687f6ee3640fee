"""What bodies of OpenAI's clients ask of the engine: choice, generation, sessions."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Hashable, Mapping
from typing import Any

from sift_core.answering.request import AnswerRequest
from sift_core.service.openai_models import Generation, Sift
from sift_core.service.state import Service
from sift_core.sources.metadata_filters import filter_for


def request_fields(service: Service, body: Generation, *, seed_after: int = 0) -> dict[str, Any]:
    """Return the fields of an `AnswerRequest` from a body, without question and mode.

    Args:
        service: Has the source and the engine.
        body: Of a chat or a completion.
        seed_after: Added to the seed, so that several texts for one prompt differ. Default: 0.
    """
    generation: dict[str, Any] = {"stop": body.stops()} if body.stops() else {}
    if body.chat_template_kwargs:
        generation["chat_template_kwargs"] = body.chat_template_kwargs
    if body.is_sampled:
        generation |= _drawn(service, body, seed_after)
    sift = body.sift
    return {
        "filter": filter_for(service.source, sift.filter),
        "queries": sift.queries,
        "latency_s": sift.latency_s,
        "effort": sift.effort,
        "max_new_tokens": body.length,
        "options": sift.choice_values(),
        "cite": sift.cite,
        "generation": generation,
    }


def _drawn(service: Service, body: Generation, seed_after: int) -> Mapping[str, Any]:
    """Return settings with which each answer draws from a generator of its own."""
    seed = secrets.randbits(63) if body.seed is None else body.seed + seed_after
    settings: dict[str, Any] = {
        "temperature": 1.0 if body.temperature is None else body.temperature,
        "top_p": body.top_p or 1.0,
        "seed": seed & (2**63 - 1),
    }
    if service.engine is not None and not service.engine.can_learn:  # a server draws
        # Only the settings that the client chose: hosted models refuse some others.
        chosen = {name: settings[name] for name in settings if getattr(body, name) is not None}
        return {"do_sample": True, **chosen}
    from sift_core.answering.model.generation_options import seeded

    return seeded(**settings)


def session_key(sift: Sift, request: AnswerRequest, *kind: str) -> Hashable | None:
    """Return all that a session's documents depend on; None if a question has no session.

    Args:
        sift: Names the session.
        request: The question.
        *kind: What else sets its sessions apart. Default: nothing.
    """
    if sift.session is None:
        return None
    conditions = json.dumps(sift.filter, sort_keys=True).encode()  # perhaps megabytes
    options = tuple(sorted(request.options.items()))
    digest = hashlib.sha256(conditions).hexdigest()
    return (sift.session, request.mode, request.effort, options, request.cite, digest, *kind)
