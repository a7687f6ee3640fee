"""A question to an engine, and the choice that is made for it before the model runs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from sift_core.answering.learning.effort import check_effort
from sift_core.answering.policy import PolicyFeatures
from sift_core.checks import (
    as_count,
    as_messages,
    as_number,
    check_flag,
    check_queries,
    check_question,
    short_repr,
)
from sift_core.errors import InvalidInputError
from sift_core.explanation import Chosen, question_variances
from sift_core.options import ChoiceOptions
from sift_core.protocols import Embedder
from sift_core.sources.several_queries import queries_of
from sift_core.types import AnswerMode, CandidatePool, Message, Query

LEAST_SECONDS = 1e-3  # where choosing and waiting took all the time there was: one step


@dataclass(frozen=True, kw_only=True, eq=False)
class AnswerRequest:
    """A question and how it is to be answered.

    Every method of `AnswerEngine` that takes a question takes a whole request, or these fields as
    keyword arguments. It takes the options of a choice by name, too. All other arguments go into
    `generation`.

    Args:
        question: In words, not empty.
        mode: "base", "context", "fine_tune", "both", "merged" or "auto". "base" needs no source,
            "merged" the engine's `adapters`. Default: "auto".
        filter: The source's own kind of filter. Default: no restriction.
        history: The chat before the question, oldest message first. Default: none.
        queries: Texts to search for in place of the question: its parts, or rewrites. Each has its
            turns in the choice. Default: the question, or what the engine's `condense` makes of it.
        latency_s: How long the caller will wait, > 0. Mode "auto" chooses by it, given a
            `cost_model`. In any mode only the first training step begins after it, and the answer
            is written to its end. Default: any time.
        effort: How much to learn at most: "quick", "balanced" or "thorough". Default: the engine's.
        max_new_tokens: Length of the answer at most, >= 1. Default: the engine's.
        options: Fields of `ChoiceOptions` by name, in place of the engine's, for the chunks that
            are read. None stands for the engine's value. Default: none.
        cite: Number the chunks and ask the model for marks such as [1]. Default: the engine's.
        generation: What `transformers`' `generate` takes, and `stop`, texts that end an answer.
            They replace the engine's. Default: none.

    Raises:
        InvalidInputError: If the question is empty, there is no such mode, or a number is out
            of its range.
    """

    question: str
    mode: AnswerMode | str = AnswerMode.AUTO
    filter: Any = None
    history: Sequence[Message] = ()
    queries: Sequence[str] = ()
    latency_s: float | None = None
    effort: str | None = None
    max_new_tokens: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    cite: bool | None = None
    generation: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_question(self.question)
        as_messages("history", self.history)
        check_queries(self.queries)
        if not isinstance(self.mode, str) or self.mode not in list(AnswerMode):
            modes = ", ".join(repr(m.value) for m in AnswerMode)
            raise InvalidInputError(f"`mode` must be one of {modes}, got {short_repr(self.mode)}")
        object.__setattr__(self, "mode", AnswerMode(self.mode))
        if self.latency_s is not None:
            as_number("latency_s", self.latency_s, above=0)
        if self.effort is not None:
            check_effort(self.effort)
        if self.max_new_tokens is not None:
            as_count("max_new_tokens", self.max_new_tokens, minimum=1)
        if not isinstance(self.options, Mapping) or set(self.options) - OPTIONS:
            raise InvalidInputError(
                f"`options` must be a mapping of fields of ChoiceOptions "
                f"({', '.join(sorted(OPTIONS))}), got {short_repr(self.options)}"
            )
        if self.cite is not None:
            check_flag("cite", self.cite)
        check_generation(self.generation)

    @classmethod
    def of(cls, question: str | AnswerRequest, options: Mapping[str, Any]) -> AnswerRequest:
        """Return the request of a call.

        Args:
            question: The question, or a request of which `options` change something.
            options: Fields of a request, and of `ChoiceOptions`; all others are settings of
                generation.
        """
        own = {name: value for name, value in options.items() if name in _FIELDS}
        if isinstance(question, AnswerRequest):
            request = question
        else:
            request = cls(question=question)
        request = replace(request, **own)
        choice = {name: value for name, value in options.items() if name in OPTIONS}
        others = {n: value for n, value in options.items() if n not in _FIELDS and n not in OPTIONS}
        return replace(
            request,
            options={**request.options, **choice},
            generation={**request.generation, **others},
        )

    def choice_options(self, engine: ChoiceOptions) -> ChoiceOptions:
        """Return what the choice of what is read obeys: the request's options, else the engine's.

        Raises:
            InvalidInputError: If a value is out of its range, or options do not go together.
        """
        return replace(
            engine, **{n: value for n, value in self.options.items() if value is not None}
        )

    def query(self, embedder: Embedder | None = None) -> Query:
        """Return the question and its history, embedded if there is something to do it."""
        if embedder is None:
            return Query(text=self.question, history=self.history)
        asked = queries_of(self.searched_for, embedder)
        return replace(asked, text=self.question, history=self.history)

    @property
    def searched_for(self) -> tuple[str, ...]:
        """Return the texts that candidates are looked for by."""
        return tuple(self.queries) or (self.question,)

    def searched(self, query: Query) -> Query:
        """Return the query as a source is asked, which may go by its text."""
        return replace(query, text=self.searched_for[0])

    def deadline(self, *, spent_s: float) -> float | None:
        """Return when the caller wants the answer, by `time.monotonic`; None for any time.

        Args:
            spent_s: Seconds of the caller's that are gone already.
        """
        return None if self.latency_s is None else time.monotonic() + self.latency_s - spent_s

    @property
    def generation_settings(self) -> dict[str, Any]:
        """Return `generation` with `max_new_tokens`, where that is given."""
        if self.max_new_tokens is None:
            return dict(self.generation)
        return {**self.generation, "max_new_tokens": self.max_new_tokens}


OPTIONS = frozenset(one.name for one in fields(ChoiceOptions))
_FIELDS = frozenset(one.name for one in fields(AnswerRequest)) - {"question"}


@dataclass(frozen=True, kw_only=True, eq=False)
class Choice:
    """Everything that is decided about a question before the model runs.

    Args:
        query: The question.
        mode: Never AUTO.
        reasons: Why this mode, one sentence each.
        pool: The candidates; empty in base mode.
        read: What goes into the prompt; None if nothing does.
        learned: What the model learns from, in order, repeats included; None if from nothing.
        effort: With which of `EFFORTS`; None where the engine's settings alone say it, or nothing
            is learned.
        timings: Seconds by stage.
        deadline: When the caller wants the answer, by `time.monotonic`; None for any time.
        features: What a policy decided by; None where none was asked.
        generation: How to generate, as in a request, with `max_new_tokens` where that is given.
        cite: Whether chunks are numbered and marks asked for.
        refuses: Whether the answer is that the documents do not tell, as `on_off_topic` says.
        searched_for: The texts that the engine looked for: the question, or what `queries` or
            `condense` put in its place. None where it looked for nothing.
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
        """Return the seconds that are left for training steps, > 0; None for any time."""
        answer_s = 0.0
        if self.features is not None and self.features.cost_model is not None:
            answer_s = self.features.cost_model.answer_s(self.features, self.mode)
        return seconds_until(self.deadline, less=answer_s)


def seconds_until(deadline: float | None, *, less: float = 0.0) -> float | None:
    """Return the seconds to a moment of `time.monotonic`, less some, > 0; None for any time."""
    return None if deadline is None else max(deadline - time.monotonic() - less, LEAST_SECONDS)


def check_generation(generation: Mapping[str, Any]) -> None:
    """Refuse settings that are no mapping, or hold the length of the answer: it has its own place.

    Raises:
        InvalidInputError: If so.
    """
    if not isinstance(generation, Mapping):
        raise InvalidInputError(f"`generation` must be a mapping, got {short_repr(generation)}")
    if "max_new_tokens" in generation:
        raise InvalidInputError("`generation` must not hold `max_new_tokens`; pass it beside it")
