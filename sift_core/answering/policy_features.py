"""What is known about a question before the model runs: all that a policy decides by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sift_core.selection import posterior_variances
from sift_core.types import AnswerMode, CandidatePool, Query

if TYPE_CHECKING:
    from sift_core.answering.in_context import InContextAnswerer

MODES = (AnswerMode.BASE, AnswerMode.CONTEXT, AnswerMode.FINE_TUNE, AnswerMode.BOTH)
READING = (AnswerMode.CONTEXT, AnswerMode.BOTH)
LEARNING = (AnswerMode.FINE_TUNE, AnswerMode.BOTH)


@dataclass(frozen=True, kw_only=True)
class PredictedSeconds:
    """How long each mode is going to take on this machine; from a `CostModel`.

    Args:
        answer: Seconds from a model that is ready to the end of the answer, one number for
            each of base, context, fine_tune and both.
        setup: Seconds to put an adapter in and to take it out.
        steps: Seconds of each training step, in order.
    """

    answer: Mapping[AnswerMode, float]
    setup: float = 0.0
    steps: tuple[float, ...] = ()

    def first(self, mode: AnswerMode, n_steps: int | None = None) -> float:
        """Return the seconds to the first answer, with `n_steps` steps; all of them if None."""
        return self.answer[mode] + self._learning(mode, n_steps)

    def each(self, mode: AnswerMode, *, n_questions: int = 1) -> float:
        """Return the mean seconds an answer where `n_questions` share one fine-tuning."""
        return self.answer[mode] + self._learning(mode) / n_questions

    def _learning(self, mode: AnswerMode, n_steps: int | None = None) -> float:
        return self.setup + sum(self.steps[:n_steps]) if mode in LEARNING else 0.0


@dataclass(frozen=True, kw_only=True)
class PolicyFeatures:
    """Everything that is known about a question once documents are chosen for it.

    The variances are of one kernel and one λ, whatever made the choices (`posterior_variances`
    with its defaults), so that reading and learning can be compared.

    Args:
        variance_before: σ² at the query before any document, >= 0.
        variance_read: σ² given the chunks that would be read: of those chosen for the prompt,
            the ones that fit into the window. `variance_before` if there are none.
        variances_learned: σ² after each training step, in order; empty if there is none.
        question_tokens: Length of the prompt without chunks.
        context_tokens: Length of all distinct chunks chosen for the prompt.
        read_tokens: Length of those of them that fit, at most `context_tokens`.
        room: Tokens that the window has left for chunks beside prompt and answer; may be < 0.
        learn_tokens: Tokens of each training step, repeats counted; as many as variances.
        max_new_tokens: Length of the answer at most; 0 where a text is only scored.
        latency_s: How long the caller will wait for the answer, > 0; None for any time.
        seconds: How long each mode takes, with a number for every step; None if unknown.
        n_questions: How many questions one fine-tuning is expected to serve, >= 1.
    """

    variance_before: float
    variance_read: float
    variances_learned: tuple[float, ...]
    question_tokens: int
    context_tokens: int
    read_tokens: int
    room: int
    learn_tokens: tuple[int, ...]
    max_new_tokens: int
    latency_s: float | None = None
    seconds: PredictedSeconds | None = None
    n_questions: int = 1

    @property
    def n_steps(self) -> int:
        """Training steps at most."""
        return len(self.variances_learned)

    @property
    def explained_read(self) -> float:
        """Share of the variance at the query that reading explains, in [0, 1]."""
        return self._explained(self.variance_read)

    @property
    def explained_learned(self) -> float:
        """Share of the variance at the query that the training documents explain, in [0, 1]."""
        return self._explained(self.variances_learned[-1]) if self.variances_learned else 0.0

    @property
    def possible(self) -> tuple[AnswerMode, ...]:
        """The modes that have chunks: to read, some that fit; to learn from, any. And base."""
        without: tuple[AnswerMode, ...] = () if self.read_tokens else READING
        without += () if self.n_steps else LEARNING
        return tuple(mode for mode in MODES if mode not in without)

    def cut(self, n_steps: int) -> PolicyFeatures:
        """Return what is known where only the first `n_steps` steps may be taken."""
        seconds = self.seconds
        return replace(
            self,
            variances_learned=self.variances_learned[:n_steps],
            learn_tokens=self.learn_tokens[:n_steps],
            seconds=None if seconds is None else replace(seconds, steps=seconds.steps[:n_steps]),
        )

    def steps_in_time(self, mode: AnswerMode) -> int | None:
        """Return how many steps end within the latency budget; None if not even the answer does.

        All of them without a budget or predicted seconds. For a mode that learns nothing, 0.
        """
        most, least = (self.n_steps, 1) if mode in LEARNING else (0, 0)
        if self.seconds is None or self.latency_s is None:
            return most
        for n in range(most, least - 1, -1):
            if self.seconds.first(mode, n) <= self.latency_s:
                return n
        return None

    def _explained(self, variance: float) -> float:
        if not self.variance_before > 0:
            return 0.0
        return min(1.0, max(0.0, 1 - variance / self.variance_before))


def features_of(
    answerer: InContextAnswerer, query: Query, chosen: CandidatePool, lessons: CandidatePool
) -> PolicyFeatures:
    """Return what is known about a question before the model runs, all but the time.

    Costs the tokens of the chunks, and two conditionings in the paper's setting.

    Args:
        answerer: How the question will be put.
        query: The question.
        chosen: What was chosen for the prompt, in order.
        lessons: What would be learned from, in order, repeats included.
    """
    model = answerer.language_model
    prompt = answerer.prompt(query, chosen.take([]))
    room = answerer.room(prompt)
    read = answerer.fitting(chosen, room)
    learned = posterior_variances(query.vector, lessons.embeddings)
    lengths = {text: model.n_tokens(text) for text in set(lessons.texts)}
    return PolicyFeatures(
        variance_before=float(learned[0]),
        variance_read=float(posterior_variances(query.vector, read.embeddings)[-1]),
        variances_learned=tuple(learned[1:].tolist()),
        question_tokens=len(model.prompt_ids(prompt)),
        context_tokens=sum(map(answerer.size, set(chosen.texts))),
        read_tokens=sum(map(answerer.size, read.texts)),
        room=room,
        learn_tokens=tuple(lengths[text] for text in lessons.texts),
        max_new_tokens=answerer.max_new_tokens,
    )
