"""The choice between base, context and fine-tuning for one query: what is known, and the rule.

Paper symbols: σ_n → the square root of `variances_learned[n - 1]` over `variance_before`;
α → `VariancePolicy.alpha`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import TYPE_CHECKING, Protocol

from sift_core.checks import as_count
from sift_core.errors import InvalidInputError
from sift_core.selection import posterior_variances
from sift_core.types import AnswerMode, CandidatePool, Query

if TYPE_CHECKING:
    from sift_core.answering.in_context import InContextAnswerer

MODES = (AnswerMode.BASE, AnswerMode.CONTEXT, AnswerMode.FINE_TUNE, AnswerMode.BOTH)
READING = (AnswerMode.CONTEXT, AnswerMode.BOTH)
LEARNING = (AnswerMode.FINE_TUNE, AnswerMode.BOTH)
TOPIC_STEPS = 10  # of a fine-tuning: those that tell whether the documents are on the topic


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


@dataclass(frozen=True, kw_only=True)
class Decision:
    """A mode and why.

    Args:
        mode: Never AUTO.
        reasons: One sentence each, with the numbers that it rests on.
        n_steps: How many of the chosen training steps to take; None for all of them, and
            where nothing is learned.

    Raises:
        InvalidInputError: If the mode is AUTO or none, or `n_steps` < 1.
    """

    mode: AnswerMode
    reasons: tuple[str, ...]
    n_steps: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.mode, AnswerMode) or self.mode is AnswerMode.AUTO:
            raise InvalidInputError(
                f"a decision's `mode` must be an AnswerMode other than AUTO, got {self.mode!r}"
            )
        if self.n_steps is not None:
            as_count("n_steps", self.n_steps, minimum=1)

    @classmethod
    def of(
        cls, features: PolicyFeatures, mode: AnswerMode, n_steps: int, reasons: Sequence[str]
    ) -> Decision:
        """Return the decision to take `n_steps` of the steps that were chosen, if `mode` learns."""
        learns_less = mode in LEARNING and n_steps < features.n_steps
        return cls(mode=mode, reasons=tuple(reasons), n_steps=n_steps if learns_less else None)


class Policy(Protocol):
    """Decides in mode "auto". Any object with this method will do."""

    def decide(self, features: PolicyFeatures) -> Decision:
        """Return the mode for one question."""


@dataclass(frozen=True, kw_only=True)
class VariancePolicy:
    """Answers from the documents if they are on the topic, by the cheaper mode that works.

    1. Base, if neither what would be read nor the first ten training steps explain enough of
       the query's variance. (Fifty steps explain a third of any question's.)
    2. Context, if the chunks fit into the window, or if those that fit explain nearly as much
       as learning would; unless so many questions share one fine-tuning that an answer then
       costs less time.
    3. Fine-tuning else.
    4. Where a mode exceeds the latency budget, first fewer training steps, then the next mode
       in the order above. If none is quick enough, the quickest.
    5. Fine-tuning takes as many steps as pay for their compute (`alpha`).

    Never "both": no rule of thumb tells when it pays; a `LearnedPolicy` may choose it.

    Args:
        min_explained: Share of the variance at the query that documents must explain, in
            [0, 1]. With MiniLM and FastAPI's documentation ten training documents explain 44 to
            84 % of 46 questions about it and 6 to 22 % of 80 from SQuAD and HotpotQA; ten that are
            read 29 to 79 % and 4 to 16 % (`benchmarks.demo_questions`).
        enough_read: Where not all chunks fit, the share of what learning would explain that
            the rest must explain to be read instead, in [0, 1]. 0.9 is a guess.
        alpha: Of the paper's compute-proportional stop: fine-tuning ends before the first step
            n with σ_n > 1 / (alpha · n), where σ_0 = 1. Larger means fewer steps; None takes
            all.

    Raises:
        InvalidInputError: If a number is out of its range.

    References:
        Hübotter et al. (2024), arXiv 2410.08020, section 6 for `alpha`.
    """

    min_explained: float = 0.25
    enough_read: float = 0.9
    alpha: float | None = None

    def __post_init__(self) -> None:
        for name in ("min_explained", "enough_read"):
            if not 0 <= getattr(self, name) <= 1:
                raise InvalidInputError(f"`{name}` must be in [0, 1], got {getattr(self, name)}")
        if self.alpha is not None and not self.alpha > 0:
            raise InvalidInputError(f"`alpha` must be > 0, got {self.alpha}")

    def decide(self, features: PolicyFeatures) -> Decision:
        """Return the mode for one question, and the steps if it learns."""
        read = features.explained_read if AnswerMode.CONTEXT in features.possible else 0.0
        topic = max(read, features.cut(TOPIC_STEPS).explained_learned)
        if topic < self.min_explained:
            reason = (
                f"the best documents explain {topic:.0%} of the variance at the query, less than "
                f"{self.min_explained:.0%}: they are off the topic"
            )
            return Decision(mode=AnswerMode.BASE, reasons=(reason,))
        explained = max(read, features.explained_learned)
        reasons = [f"the chosen documents explain {explained:.0%} of the variance at the query"]
        paying = features
        if self.alpha is not None:
            paying = features.cut(compute_proportional_steps(features, self.alpha))
        order = self._in_order(paying, reasons)
        mode, steps = first_in_time(paying, order, reasons)
        if paying.n_steps < features.n_steps and AnswerMode.CONTEXT not in order[:1]:
            reasons.append(
                f"{paying.n_steps} of {features.n_steps} training steps pay for their compute: "
                f"the next would leave σ above 1 / ({self.alpha:g} · {paying.n_steps + 1})"
            )
        return Decision.of(features, mode, steps, reasons)

    def _in_order(self, features: PolicyFeatures, reasons: list[str]) -> list[AnswerMode]:
        """Return the modes to be tried, the preferred first; add to `reasons` why that one."""
        read, learn = AnswerMode.CONTEXT, AnswerMode.FINE_TUNE
        explained = {read: features.explained_read, learn: features.explained_learned}
        order = [
            mode
            for mode in (read, learn)
            if mode in features.possible and explained[mode] >= self.min_explained
        ]
        fits = features.context_tokens <= features.room
        if features.context_tokens:
            reasons.append(
                f"their {features.context_tokens} tokens {'fit into' if fits else 'exceed'} the "
                f"{max(features.room, 0)} that the window has left"
            )
        if read not in order and features.read_tokens:
            reasons.append(f"what would be read explains {explained[read]:.0%} alone")
        if order == [read, learn] and (
            self._learns_cheaper(features, reasons)
            if fits
            else not self._reads_enough(features, reasons)
        ):
            order.reverse()
        return [*order, AnswerMode.BASE]

    def _reads_enough(self, features: PolicyFeatures, reasons: list[str]) -> bool:
        read, learned = features.explained_read, features.explained_learned
        enough = read >= self.enough_read * learned
        reasons.append(
            f"those that fit explain {read:.0%} of the variance, {'at least' if enough else 'not'} "
            f"{self.enough_read:.0%} of the {learned:.0%} that learning would"
        )
        return enough

    @staticmethod
    def _learns_cheaper(features: PolicyFeatures, reasons: list[str]) -> bool:
        if features.seconds is None or features.n_questions == 1:
            return False  # one question alone: learning is the longer way, and the less certain
        n = features.n_questions
        read, learn = (
            features.seconds.each(mode, n_questions=n)
            for mode in (AnswerMode.CONTEXT, AnswerMode.FINE_TUNE)
        )
        reasons.append(
            f"over {n} questions fine-tuning takes {learn:.2g} s an answer, reading {read:.2g} s"
        )
        return learn < read


def compute_proportional_steps(features: PolicyFeatures, alpha: float) -> int:
    """Return how many training steps pay for their compute.

    All before the first step n with σ_n > 1 / (alpha · n), where σ_0 = 1.

    References:
        Hübotter et al. (2024), arXiv 2410.08020, section 6.
    """
    if not features.variance_before > 0:
        return 0
    for n, variance in enumerate(features.variances_learned, start=1):
        if sqrt(variance / features.variance_before) > 1 / (alpha * n):
            return n - 1
    return features.n_steps


def first_in_time(
    features: PolicyFeatures, order: Sequence[AnswerMode], reasons: list[str]
) -> tuple[AnswerMode, int]:
    """Return the first mode of `order` within the latency budget, and its training steps.

    The quickest of all where the budget excludes every one. Without a budget or predicted
    seconds the first of `order`.

    Args:
        features: What is known.
        order: The modes to be tried, the preferred first, at least one.
        reasons: Gets a sentence for all that the budget changes.
    """
    seconds, latency = features.seconds, features.latency_s
    if latency is None:
        return order[0], features.n_steps
    if seconds is None:
        reasons.append(f"no cost model tells what fits into the {latency:.2g} s of the caller")
        return order[0], features.n_steps
    for mode in order:
        steps = features.steps_in_time(mode)
        if steps is None:
            least = 1 if mode in LEARNING else 0
            reasons.append(
                f"{mode.value!r} would take {seconds.first(mode, least):.2g} s at least, more than "
                f"the {latency:.2g} s of the caller"
            )
            continue
        taken = f"{mode.value!r} takes {seconds.first(mode, steps):.2g} s"
        if mode in LEARNING and steps < features.n_steps:
            taken += f" with {steps} of {features.n_steps} training steps"
        reasons.append(f"{taken}, within the {latency:.2g} s of the caller")
        return mode, steps
    least_steps = min(1, features.n_steps)
    quickest = min(order, key=lambda mode: seconds.first(mode, least_steps))
    reasons.append(f"nothing is quick enough; {quickest.value!r} is the quickest")
    return quickest, least_steps
