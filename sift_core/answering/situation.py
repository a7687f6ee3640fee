"""What is known about a question before the model runs: all that a policy decides by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import isfinite

from sift_core.checks import as_count
from sift_core.errors import InvalidInputError
from sift_core.types import AnswerMode

MODES = (AnswerMode.BASE, AnswerMode.CONTEXT, AnswerMode.FINE_TUNE, AnswerMode.BOTH)
READING = (AnswerMode.CONTEXT, AnswerMode.BOTH)
LEARNING = (AnswerMode.FINE_TUNE, AnswerMode.BOTH)


@dataclass(frozen=True, kw_only=True)
class PredictedSeconds:
    """How long each way to answer is going to take on this machine; from a `CostModel`.

    Args:
        answer: Seconds from a model that is ready to the end of the answer, one number for
            each of base, context, fine_tune and both.
        setup: Seconds to put an adapter in and to take it out.
        steps: Seconds of each training step, in order.

    Raises:
        InvalidInputError: If a mode is missing, or a number is negative or not finite.
    """

    answer: Mapping[AnswerMode, float]
    setup: float = 0.0
    steps: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        missing = [mode.value for mode in MODES if mode not in self.answer]
        if missing:
            raise InvalidInputError(f"`answer` must have seconds for every mode, not for {missing}")
        for name, values in (
            ("answer", self.answer.values()),
            ("setup", [self.setup]),
            ("steps", self.steps),
        ):
            _check_numbers(f"seconds of `{name}`", values)

    def learning(self, n_steps: int | None = None) -> float:
        """Return the seconds of the first `n_steps` steps and their set-up; of all if None."""
        return self.setup + sum(self.steps[:n_steps])

    def first(self, mode: AnswerMode, n_steps: int | None = None) -> float:
        """Return the seconds that the first answer takes, its fine-tuning included."""
        return self.answer[mode] + (self.learning(n_steps) if mode in LEARNING else 0.0)

    def each(self, mode: AnswerMode, *, n_questions: int = 1) -> float:
        """Return the mean seconds an answer where `n_questions` share one fine-tuning."""
        return self.answer[mode] + (self.learning() / n_questions if mode in LEARNING else 0.0)


@dataclass(frozen=True, kw_only=True)
class Situation:
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
        latency_s: How long the caller will wait for the answer; None if that is no matter.
        seconds: How long each way takes, with a number for every step; None if unknown.
        n_questions: How many questions one fine-tuning is expected to serve, >= 1.

    Raises:
        InvalidInputError: If a number is out of its range or the lengths differ.
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

    def __post_init__(self) -> None:
        _check_numbers("variances", [self.variance_before, self.variance_read])
        _check_numbers("variances", self.variances_learned)
        for name in ("question_tokens", "context_tokens", "read_tokens", "max_new_tokens"):
            as_count(name, getattr(self, name), minimum=0)
        as_count("n_questions", self.n_questions, minimum=1)
        if self.read_tokens > self.context_tokens:
            raise InvalidInputError(
                f"`read_tokens` must be at most `context_tokens`, got {self.read_tokens} of "
                f"{self.context_tokens}"
            )
        if len(self.learn_tokens) != len(self.variances_learned):
            raise InvalidInputError(
                f"`learn_tokens` must have one number a step like `variances_learned`, got "
                f"{len(self.learn_tokens)} and {len(self.variances_learned)}"
            )
        if self.seconds is not None and len(self.seconds.steps) != self.n_steps:
            raise InvalidInputError(
                f"`seconds` must have one number a step, got {len(self.seconds.steps)} for "
                f"{self.n_steps} steps"
            )
        if self.latency_s is not None and not self.latency_s > 0:
            raise InvalidInputError(f"`latency_s` must be > 0, got {self.latency_s}")

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
        if not self.variances_learned:
            return 0.0
        return self._explained(self.variances_learned[-1])

    @property
    def possible(self) -> tuple[AnswerMode, ...]:
        """The modes for which there are chunks: that fit in part at least, to read; any, to learn.

        "base" is always one of them.
        """
        excluded: set[AnswerMode] = set()
        if self.read_tokens == 0:
            excluded.update(READING)
        if self.n_steps == 0:
            excluded.update(LEARNING)
        return tuple(mode for mode in MODES if mode not in excluded)

    def cut(self, n_steps: int) -> Situation:
        """Return the situation in which only the first `n_steps` steps may be taken."""
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
        most = self.n_steps if mode in LEARNING else 0
        if self.seconds is None or self.latency_s is None:
            return most
        least = 1 if mode in LEARNING else 0
        for n in range(most, least - 1, -1):
            if self.seconds.first(mode, n) <= self.latency_s:
                return n
        return None

    def _explained(self, variance: float) -> float:
        if not self.variance_before > 0:
            return 0.0
        return min(1.0, max(0.0, 1 - variance / self.variance_before))


def _check_numbers(name: str, values: Iterable[float]) -> None:
    for value in values:
        if not (isfinite(value) and value >= 0):
            raise InvalidInputError(f"{name} must be finite and >= 0, got {value}")
