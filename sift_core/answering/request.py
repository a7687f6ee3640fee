"""A question to an engine, and how it is to be answered."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from sift_core.answering.settings import check_effort
from sift_core.checks import (
    as_count,
    as_messages,
    as_number,
    check_flag,
    check_queries,
    check_question,
    short_repr,
)
from sift_core.choice_spans import embeddings_span
from sift_core.errors import InvalidInputError
from sift_core.options import ChoiceOptions
from sift_core.protocols import Embedder
from sift_core.sources.multi_query import queries_of
from sift_core.types import AnswerMode, Message, Query


@dataclass(frozen=True, kw_only=True, eq=False)
class AnswerRequest:
    """A question and how it is to be answered.

    Every method of `AnswerEngine` that takes a question takes a whole request, or these fields as
    keyword arguments. It takes the options of a choice by name, too. All other arguments go into
    `generation`.

    Args:
        question: In words, not empty.
        mode: "base", "context", "fine_tune", "both", "learned", "learned_context" or "auto".
            "base" and "learned" need no source. "learned" and "learned_context" need the engine's
            `learning.adapter`. Default: "auto".
        filter: The source's own kind of filter. Default: no restriction.
        history: The chat before the question, oldest message first. Default: none.
        queries: Texts to search for in place of the question: its parts, or rewrites. Each has its
            turns in the choice. Default: the question, as the engine's `query_rewriting` has it.
        latency_s: Seconds that the caller will wait, > 0. Mode "auto" chooses by it if the policy
            has a `cost_model`. In any mode only the first training step begins after it, and the
            answer is written to its end. Default: any time.
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

    Example:
        >>> request = AnswerRequest(question=question, mode="context", max_new_tokens=8)
        >>> engine.answer(request).mode.value
        'context'
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
        if "max_new_tokens" in self.generation:
            raise InvalidInputError(
                "`generation` of a request must not hold `max_new_tokens`; pass it beside it"
            )

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
        with embeddings_span(embedder, self.searched_for):
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


def check_generation(generation: Mapping[str, Any]) -> None:
    """Refuse settings of generation that are no mapping of names.

    Raises:
        InvalidInputError: If so.
    """
    if not isinstance(generation, Mapping) or not all(isinstance(name, str) for name in generation):
        raise InvalidInputError(
            f"`generation` must be a mapping of names, got {short_repr(generation)}"
        )
