"""What settles a question before the model runs: documents, mode and effort."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from sift_core.answering.learning.effort import EFFORTS, effort_for
from sift_core.answering.policy import LEARNING, READING, Decision
from sift_core.answering.request import (
    AnswerRequest,
    Choice,
    chosen,
    first_choices,
    rules_of,
    seconds_until,
)
from sift_core.repeated_texts import select_texts
from sift_core.types import AnswerMode, CandidatePool, Query

if TYPE_CHECKING:
    from sift_core.answering.engine import AnswerEngine


def settled(
    engine: AnswerEngine,
    request: AnswerRequest,
    query: Query,
    pool: CandidatePool,
    timings: Mapping[str, float],
) -> Choice:
    """Return the choice of documents and, in mode "auto", of the mode.

    Args:
        engine: How to choose.
        request: What is asked.
        query: It, embedded.
        pool: The candidates.
        timings: Seconds that were spent already, by stage.
    """
    started = time.perf_counter()
    deadline = request.deadline(spent_s=sum(timings.values()))
    mode = AnswerMode(request.mode)
    if not len(pool) and mode is not AnswerMode.MERGED:
        mode = AnswerMode.BASE
    read = learned = features = None
    effort = request.effort or (engine.effort if engine.n_steps is None else None)
    n_steps = EFFORTS[effort].n_steps if effort else engine.n_steps
    assert n_steps is not None  # one of the two says it
    answerer = engine.answerer_for(request)
    if mode in (*LEARNING, AnswerMode.AUTO):
        learned = engine.fine_tuning_selector.select(query.vectors, pool.embeddings, n_steps)
    if mode in (*READING, AnswerMode.AUTO):
        rules = rules_of(engine, request)
        read = select_texts(
            engine.context_selector,
            query.vectors,
            pool.embeddings,
            engine.n_context,
            text_of=pool.texts.__getitem__,
            relevance=pool.relevance,
            **rules.on(pool.texts, pool.metadata, count_tokens=answerer.size),
        )
        pool, read = rules.merged(
            pool,
            read,
            size=lambda row, text: answerer.size(text),
            room=answerer.room_beside(query),
        )
    if mode is AnswerMode.AUTO:
        features = replace(
            answerer.features(query, chosen(pool, read), chosen(pool, learned)),
            latency_s=seconds_until(deadline),
            cost_model=engine.cost_model,
            can_merge=engine.adapters is not None,
        )
        decision = engine.policy.decide(features)
    else:
        reason = "it was asked for" if mode is request.mode else "there is no candidate"
        none = request.mode is AnswerMode.AUTO
        decision = Decision(mode=mode, reasons=(reason,), is_off_topic=none)
    if decision.mode is AnswerMode.MERGED and engine.adapters is not None:
        reasons = (*decision.reasons, engine.adapters.reason(query))
        decision = replace(decision, reasons=reasons)
    learned = first_choices(learned, decision.n_steps) if decision.mode in LEARNING else None
    return Choice(
        query=query,
        mode=decision.mode,
        reasons=decision.reasons,
        pool=pool,
        read=read if decision.mode in READING else None,
        learned=learned,
        effort=effort_for(len(learned)) if effort and learned is not None else None,
        timings={**timings, "select": time.perf_counter() - started},
        deadline=deadline,
        features=features,
        generation=request.generation_settings,
        cite=answerer.cite,
        refuses=decision.is_off_topic and engine.on_off_topic == "refuse",
        searched_for=request.searched_for if "fetch" in timings else (),
    )
