"""Decide about a question before the model runs: what is read, what is learned, in which mode."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sift_core.answering.in_context import InContextAnswerer
from sift_core.answering.options import LearningOptions
from sift_core.answering.policy import LEARNING, READING, Decision, Policy, PolicyFeatures
from sift_core.answering.request import AnswerRequest
from sift_core.choice import choose
from sift_core.explanation import Chosen, question_variances
from sift_core.options import ChoiceOptions
from sift_core.types import AnswerMode, CandidatePool, Query, StopReason

LEAST_SECONDS = 1e-3  # where choosing and waiting took all the time there was: one step


@dataclass(frozen=True, kw_only=True, eq=False)
class Choice:
    """Everything that is decided about a question before the model runs.

    Args:
        query: The question.
        mode: Never AUTO.
        reasons: Why this mode, one sentence each.
        pool: The candidates; empty in base mode.
        read: Chunks that go into the prompt. None if none do.
        learned: Chunks that the model learns from, in order, repeats included. None if it learns
            nothing.
        effort: With which of `EFFORTS`. Default: as the engine's settings alone say.
        timings: Seconds by stage.
        deadline: When the caller wants the answer, by `time.monotonic`. Default: any time.
        answer_s: Predicted seconds of reading and writing. Default: 0.
        features: What the policy decided by. Default: None, as no policy decided.
        generation: How to generate, as in a request, with `max_new_tokens` where that is given.
        cite: Whether chunks are numbered and marks asked for.
        refuses: Whether the answer is that the documents say nothing about it.
        searched_for: The texts that the engine searched for. Default: none, as it did not search.
    """

    query: Query
    mode: AnswerMode
    reasons: tuple[str, ...]
    pool: CandidatePool
    read: Chosen | None
    learned: Chosen | None
    timings: Mapping[str, float]
    effort: str | None = None
    deadline: float | None = None
    answer_s: float = 0.0
    features: PolicyFeatures | None = None
    generation: Mapping[str, Any] = field(default_factory=dict)
    cite: bool = False
    refuses: bool = False
    searched_for: tuple[str, ...] = ()

    def standard_deviation(self, used: CandidatePool) -> float:
        """Return σ at the question given some chunks, in the paper's setting; NaN without any."""
        if not len(used):
            return float("nan")
        return float(question_variances(self.query, used.embeddings)[-1] ** 0.5)

    def chunks(self, chosen: Chosen | None) -> CandidatePool:
        """Return the chunks of `read` or `learned` in order of choice; none for None."""
        return self.pool.take([]) if chosen is None else chosen.chunks

    @property
    def used(self) -> CandidatePool:
        """Return the chunks that are read, then those that are learned from, repeats kept."""
        return CandidatePool.concatenate([self.chunks(self.read), self.chunks(self.learned)])

    def seconds_to_learn(self) -> float | None:
        """Return the seconds that are left for training steps, > 0; None without a deadline."""
        return _seconds_until(self.deadline, less=self.answer_s)


def first_choice_arguments(
    request: AnswerRequest,
    query: Query,
    answerer: InContextAnswerer,
    options: ChoiceOptions,
    learning: LearningOptions,
) -> dict[str, Any]:
    """Return the arguments of `search` and `choose` for the first choice of a question.

    It is the choice of what is read, or in mode "fine_tune" of what is learned.

    Args:
        request: The question, and how to answer it.
        query: The question.
        answerer: Counts tokens, and says how many the window has left.
        options: What the choice obeys where the request does not say it.
        learning: What the choice of lessons obeys.
    """
    options = request.choice_options(options)
    if request.mode is AnswerMode.FINE_TUNE:
        lessons = learning.with_effort(request.effort).choice_options
        return {"options": replace(lessons, n_candidates=options.n_candidates)}
    return {
        "options": replace(options, count_tokens=options.count_tokens or answerer.size),
        "room": answerer.room_beside(query) if options.merge_neighbors else None,
    }


def make_choice(
    request: AnswerRequest,
    query: Query,
    chosen: Chosen,
    *,
    answerer: InContextAnswerer,
    learning: LearningOptions,
    policy: Policy,
    timings: Mapping[str, float],
) -> Choice:
    """Return the choice of documents and, in mode "auto", of the mode.

    Args:
        request: The question, and how to answer it.
        query: The question, embedded.
        chosen: The first choice, made by `first_choice_arguments`.
        answerer: Puts the question as the request says.
        learning: What is learned where the request does not say it.
        policy: Decides in mode "auto".
        timings: Seconds that were spent before it, by stage.
    """
    learning = learning.with_effort(request.effort)
    started = time.perf_counter()
    timings = {**timings, **chosen.timings}
    deadline = request.deadline(spent_s=sum(timings.values()))
    mode, pool = AnswerMode(request.mode), chosen.pool
    if not len(pool) and mode is not AnswerMode.MERGED:
        mode = AnswerMode.BASE
    read = chosen if mode in (*READING, AnswerMode.AUTO) else None
    learned = features = None
    if mode is AnswerMode.FINE_TUNE:
        learned = chosen
    elif mode in (AnswerMode.BOTH, AnswerMode.AUTO):
        learned = choose(pool, query, learning.choice_options)
    if mode is AnswerMode.AUTO:
        assert read is not None  # as is `learned`
        assert learned is not None
        features = replace(
            answerer.features(query, read.chunks, learned.chunks),
            latency_s=_seconds_until(deadline),
            can_merge=learning.adapter is not None,
        )
        decision = policy.decide(features)
    else:
        reason = "it was asked for" if mode is request.mode else "there is no candidate"
        is_off_topic = request.mode is AnswerMode.AUTO
        decision = Decision(mode=mode, reasons=(reason,), is_off_topic=is_off_topic)
    learned = learned if decision.mode in LEARNING else None
    if learned is not None and decision.n_steps is not None:
        learned = learned.first(decision.n_steps)
    select_s = timings.get("select", 0.0) + time.perf_counter() - started
    return Choice(
        query=query,
        mode=decision.mode,
        reasons=decision.reasons,
        pool=pool,
        read=read if decision.mode in READING else None,
        learned=learned,
        effort=None if learned is None else learning.effort_of(len(learned)),
        timings={**timings, "select": select_s},
        deadline=deadline,
        answer_s=decision.answer_s,
        features=features,
        generation=request.generation_settings,
        cite=answerer.prompt.cite,
        refuses=decision.is_off_topic and policy.on_off_topic == "refuse",
        searched_for=request.searched_for if "fetch" in timings else (),
    )


def nothing_chosen(query: Query, pool: CandidatePool | None = None) -> Chosen:
    """Return the choice of no candidate, where nothing is read or learned."""
    return Chosen(
        query=query,
        pool=CandidatePool.empty() if pool is None else pool,
        passages=(),
        positions=np.empty(0, dtype=np.intp),
        variances=np.ones(1),
        stop_reason=StopReason.POOL_EXHAUSTED,
    )


def _seconds_until(deadline: float | None, *, less: float = 0.0) -> float | None:
    """Return the seconds until a time of `time.monotonic`, less `less`, > 0; None without one."""
    return None if deadline is None else max(deadline - time.monotonic() - less, LEAST_SECONDS)
