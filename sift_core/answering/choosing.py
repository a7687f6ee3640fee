"""Decide about a question before the model runs: what is read, what is learned, in which mode."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from sift_core.answering.cost_model import BEFOREHAND, LEARNING, READING, PolicyFeatures, Strategy
from sift_core.answering.in_context import LARGEST_COUNT, InContextAnswerer
from sift_core.answering.policy import Decision, Policy
from sift_core.answering.request import AnswerRequest
from sift_core.answering.settings import (
    EFFORTS,
    FineTuningSettings,
    check_effort,
    effort_for,
)
from sift_core.checks import as_count, check_instance, short_repr
from sift_core.choice import choose
from sift_core.errors import InvalidInputError, MissingDependencyError
from sift_core.explanation import Chosen, question_variances
from sift_core.options import ChoiceOptions
from sift_core.protocols import Selector
from sift_core.selection.context import ContextSelector
from sift_core.selection.sift import SIFTSelector
from sift_core.selection.topic import no_baseline, topic_floor, unrelated_cosine
from sift_core.types import AnswerMode, CandidatePool, Query, StopReason

if TYPE_CHECKING:  # a server's model needs no torch
    from sift_core.answering.adapter_cache import AdapterCache
    from sift_core.answering.model.adapters import Adapter

LEAST_SECONDS = 1e-3  # where choosing and waiting took all the time there was: one step


def _lesson_selector() -> Selector:
    return SIFTSelector.for_fine_tuning(noise_variance=0.1)


def _adapter_cache() -> AdapterCache | None:
    """Return a cache in memory; None without torch, where nothing is learned."""
    with suppress(MissingDependencyError):
        from sift_core.answering.adapter_cache import AdapterCache

        return AdapterCache()
    return None


@dataclass(frozen=True, kw_only=True, eq=False)
class LearningOptions:
    """How much a model learns for a question, from which chunks, and how.

    Args:
        effort: How much to learn at most: "quick", "balanced" or "thorough", which are steps and a
            rate that suits them (`EFFORTS`). Default: "balanced".
        n_steps: Training steps in place of `effort`, >= 1, taken as `settings` say; the paper's
            are 50. Default: the steps of `effort`.
        selector: Chooses the chunks to learn from. Default: the paper's selector with repeats and
            λ = 0.1 (decision 0014).
        settings: How an adapter learns. Default: the paper's settings.
        cache: Keeps adapters for the next question with the same chunks. Default: one in memory;
            None keeps nothing.
        adapter: What `learn_collection` has learned beforehand, for modes "learned" and
            "learned_context". Default: none, and no such modes.

    Raises:
        InvalidInputError: If there is no such effort, `n_steps` is out of its range, or an object
            is of another class.

    Example:
        >>> LearningOptions(effort="quick").max_steps, LearningOptions(n_steps=7).max_steps
        (5, 7)
    """

    effort: str = "balanced"
    n_steps: int | None = None
    selector: Selector = field(default_factory=_lesson_selector)
    settings: FineTuningSettings = field(default_factory=FineTuningSettings)
    cache: AdapterCache | None = field(default_factory=_adapter_cache)
    adapter: Adapter | None = None

    def __post_init__(self) -> None:
        check_effort(self.effort)
        check_instance("settings", self.settings, FineTuningSettings)
        if self.cache is not None:
            from sift_core.answering.adapter_cache import AdapterCache

            check_instance("cache", self.cache, AdapterCache)
        if self.adapter is not None:
            from sift_core.answering.model.adapters import Adapter

            check_instance("adapter", self.adapter, Adapter)
        if self.n_steps is not None:
            as_count("n_steps", self.n_steps, minimum=1, maximum=LARGEST_COUNT)
        if not isinstance(self.selector, Selector):
            raise InvalidInputError(
                f"`selector` must have a method `select`, got {short_repr(self.selector)}"
            )

    def with_effort(self, effort: str | None) -> LearningOptions:
        """Return these options with another effort, and its steps; None changes nothing."""
        return self if effort is None else replace(self, effort=effort, n_steps=None)

    @property
    def max_steps(self) -> int:
        """Training steps at most."""
        return EFFORTS[self.effort].n_steps if self.n_steps is None else self.n_steps

    @property
    def choice_options(self) -> ChoiceOptions:
        """Options of the choice of training data.

        It goes by embeddings alone, as the paper's method does and as was measured. A policy reads
        its features from these choices, too.
        """
        return ChoiceOptions(n_select=self.max_steps, words=0, selector=self.selector)

    def strategies(self, *, with_learned: bool) -> tuple[Strategy, ...]:
        """Return all ways to answer of an engine that learns so, base and context first.

        Args:
            with_learned: Whether mode "learned" is one of them, if there is an `adapter`.
        """
        efforts = [one.n_steps for one in EFFORTS.values() if one.n_steps <= self.max_steps]
        counts = efforts if self.n_steps is None else [self.n_steps]
        modes = [AnswerMode.BASE, AnswerMode.CONTEXT]
        if with_learned and self.adapter is not None:
            modes.append(AnswerMode.LEARNED)
        learning = [Strategy(mode, n) for n in counts for mode in LEARNING]
        return (*map(Strategy, modes), *learning)

    def effort_of(self, n_steps: int) -> str | None:
        """Return the least named effort of `n_steps` steps; None where `n_steps` replaces it."""
        return effort_for(n_steps) if self.n_steps is None else None

    def settings_of(self, effort: str | None) -> FineTuningSettings:
        """Return how an adapter learns with a named effort; as `settings` say for None."""
        return self.settings if effort is None else EFFORTS[effort].of(self.settings)


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

    Example:
        >>> choice = engine.choose("When does the ferry sail?", mode="context")
        >>> choice.mode.value, choice.read.chunks.document_ids
        ('context', ('timetable', 'prices'))
        >>> engine.answer_from(choice).mode.value
        'context'
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

    def with_read(self, read: Chosen) -> Choice:
        """Return the choice with other chunks to read; their seconds add to its own."""
        return replace(self, read=read, timings={**read.timings, **self.timings})

    @cached_property
    def unrelated_cosine(self) -> float:
        """Cosine of unrelated candidates; 0 if there are too few to show it."""
        return unrelated_cosine(self.pool) or 0.0

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


def check_mode(mode: AnswerMode, answerer: InContextAnswerer, adapter: Adapter | None) -> None:
    """Check that a question can be answered in a mode.

    Args:
        mode: The mode that was asked for.
        answerer: It says whether its writer takes adapters.
        adapter: Adapter that was learned beforehand.

    Raises:
        InvalidInputError: If the writer takes no adapter, or such a mode has none.
    """
    if mode in (*LEARNING, *BEFOREHAND) and not answerer.can_learn:
        raise InvalidInputError(
            f'mode "{mode.value}" learns, and the server that writes the answers does not take '
            f'what is learned here; ask in mode "context" or "base", or have the local model or a '
            f"vLLM (`VllmGenerator`) write"
        )
    if mode in BEFOREHAND and adapter is None:
        raise InvalidInputError(
            f'mode "{mode.value}" needs an adapter that was learned beforehand; construct the '
            f"engine with `LearningOptions(adapter=…)`, from `learn_collection` or `sift learn`"
        )


def take_several_queries(options: ChoiceOptions, learning: LearningOptions) -> bool:
    """Return whether the selectors of what is read and of what is learned take several queries."""
    selectors = (options.selector or ContextSelector(), learning.selector)
    return all(isinstance(one, ContextSelector | SIFTSelector) for one in selectors)


def first_choice_arguments(
    request: AnswerRequest,
    query: Query,
    answerer: InContextAnswerer,
    options: ChoiceOptions,
    learning: LearningOptions,
    *,
    joins: bool = False,
) -> dict[str, Any]:
    """Return the arguments of `search` and `choose` for the first choice of a question.

    It is the choice of what is read, or in mode "fine_tune" of what is learned.

    Args:
        request: The question, and how to answer it.
        query: The question.
        answerer: Counts tokens, and says how many the window has left.
        options: What the choice obeys where the request does not say it.
        learning: What the choice of lessons obeys.
        joins: Whether chunks are joined even without `merge_neighbors`. Default: they are not.
    """
    options = request.choice_options(options)
    if request.mode is AnswerMode.FINE_TUNE:
        lessons = learning.with_effort(request.effort).choice_options
        return {"options": replace(lessons, n_candidates=options.n_candidates)}
    return {
        "options": replace(options, count_tokens=options.count_tokens or answerer.size),
        "room": answerer.room_beside(query) if joins or options.merge_neighbors else None,
    }


def make_choice(
    request: AnswerRequest,
    query: Query,
    chosen: Chosen,
    *,
    answerer: InContextAnswerer,
    learning: LearningOptions,
    policy: Policy,
    baseline: Callable[[], float] = no_baseline,
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
        baseline: Returns the embedder's cosine for unrelated texts. Default: 0.
        timings: Seconds that were spent before it, by stage.
    """
    learning = learning.with_effort(request.effort)
    started = time.perf_counter()
    timings = {**timings, **chosen.timings}
    deadline = request.deadline(spent_s=sum(timings.values()))
    mode, pool = AnswerMode(request.mode), chosen.pool
    if not len(pool):
        mode = AnswerMode.LEARNED if mode in BEFOREHAND else AnswerMode.BASE
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
            has_adapter=learning.adapter is not None,
            nearest=float(pool.similarities.max()),
            topic_floor=topic_floor(pool, baseline=baseline),
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
