"""The choice between base, context and fine-tuning for one query: what is known, and the rule.

Paper symbol: σ_n → the square root of `variances_learned[n - 1]` over `variance_before`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, sqrt
from typing import TYPE_CHECKING, Protocol

from sift_core.checks import as_count, as_number, shown
from sift_core.errors import InvalidInputError
from sift_core.types import AnswerMode

if TYPE_CHECKING:
    from sift_core.answering.cost_model import CostModel

MODES = (AnswerMode.BASE, AnswerMode.CONTEXT, AnswerMode.FINE_TUNE, AnswerMode.BOTH)
READING = (AnswerMode.CONTEXT, AnswerMode.BOTH)
LEARNING = (AnswerMode.FINE_TUNE, AnswerMode.BOTH)
TOPIC_STEPS = 10  # of a fine-tuning: those that tell whether the documents are on the topic


@dataclass(frozen=True, kw_only=True)
class PolicyFeatures:
    """What is known about a question once documents are chosen for it.

    The variances are of `posterior_variances` with its defaults, whatever made the choices, so
    that reading and learning can be compared.

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
        max_new_tokens: Length of the answer at most.
        latency_s: How long the caller will wait for the answer, > 0; None for any time.
        cost_model: Tells how long each mode takes on this machine; None if unknown.
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
    cost_model: CostModel | None = None
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

    def cut(self, n_steps: int) -> PolicyFeatures:
        """Return what is known where only the first `n_steps` steps may be taken."""
        return replace(
            self,
            variances_learned=self.variances_learned[:n_steps],
            learn_tokens=self.learn_tokens[:n_steps],
        )

    def _explained(self, variance: float) -> float:
        if not self.variance_before > 0:
            return 0.0
        return min(1.0, max(0.0, 1 - variance / self.variance_before))


@dataclass(frozen=True, kw_only=True)
class Decision:
    """A mode and why.

    Args:
        mode: Never AUTO.
        reasons: One sentence each, with the numbers that it rests on.
        n_steps: How many of the chosen training steps to take; None for all of them, and
            where nothing is learned.
        is_off_topic: Whether the documents say nothing on the question; an engine may refuse then.

    Raises:
        InvalidInputError: If the mode is AUTO or none, or `n_steps` < 1.
    """

    mode: AnswerMode
    reasons: tuple[str, ...]
    n_steps: int | None = None
    is_off_topic: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.mode, AnswerMode) or self.mode is AnswerMode.AUTO:
            raise InvalidInputError(
                f"a decision's `mode` must be an AnswerMode other than AUTO, got {shown(self.mode)}"
            )
        if self.n_steps is not None:
            as_count("n_steps", self.n_steps, minimum=1)


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

    Never "both".

    Args:
        min_explained: Share of the variance at the query that documents must explain, in
            [0, 1]. Ten documents on the topic explain 29 to 84 %, others 4 to 22 % (MiniLM,
            `benchmarks.demo_questions`).
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
            as_number(name, getattr(self, name), minimum=0, maximum=1)
        if self.alpha is not None:
            as_number("alpha", self.alpha, above=0, maximum=inf)

    def decide(self, features: PolicyFeatures) -> Decision:
        """Return the mode for one question, and the steps if it learns."""
        read = features.explained_read
        topic = max(read, features.cut(TOPIC_STEPS).explained_learned)
        if topic < self.min_explained:
            reason = (
                f"the best documents explain {topic:.0%} of the variance at the query, less than "
                f"{self.min_explained:.0%}: they are off the topic"
            )
            return Decision(mode=AnswerMode.BASE, reasons=(reason,), is_off_topic=True)
        reasons: list[str] = []
        paying = features.cut(_n_paying(features, self.alpha))
        mode, steps = _first_in_time(paying, self._in_order(paying, reasons), reasons)
        if mode is not AnswerMode.BASE:
            learned = paying.cut(steps).explained_learned
            told = ("read", read) if mode is AnswerMode.CONTEXT else ("learned", learned)
            share = f"what is {told[0]} explains {told[1]:.0%} of the variance at the query"
            reasons.insert(0, share)
        if paying.n_steps < features.n_steps and mode is not AnswerMode.CONTEXT:
            reasons.append(
                f"{paying.n_steps} of {features.n_steps} training steps pay for their compute: "
                f"the next would leave σ above 1 / ({self.alpha:g} · {paying.n_steps + 1})"
            )
        learns_less = mode in LEARNING and steps < features.n_steps
        return Decision(mode=mode, reasons=tuple(reasons), n_steps=steps if learns_less else None)

    def _in_order(self, features: PolicyFeatures, reasons: list[str]) -> list[AnswerMode]:
        """Return the modes to be tried, the preferred first; add to `reasons` why that one."""
        read, learned = features.explained_read, features.explained_learned
        context, learn = AnswerMode.CONTEXT, AnswerMode.FINE_TUNE
        order = []
        if features.read_tokens and read >= self.min_explained:
            order.append(context)
        if features.n_steps and learned >= self.min_explained:
            order.append(learn)
        fits = features.context_tokens <= features.room
        if features.context_tokens:
            reasons.append(
                f"their {features.context_tokens} tokens {'fit into' if fits else 'exceed'} the "
                f"{max(features.room, 0)} that the window has left"
            )
        if context not in order and features.read_tokens:
            reasons.append(f"what would be read explains {read:.0%} alone")
        if order != [context, learn]:
            return [*order, AnswerMode.BASE]
        n = features.n_questions
        is_reversed = False
        if not fits:
            enough = read >= self.enough_read * learned
            reasons.append(
                f"those that fit explain {read:.0%} of the variance, "
                f"{'at least' if enough else 'not'} {self.enough_read:.0%} of the {learned:.0%} "
                f"that learning would"
            )
            is_reversed = not enough
        elif features.cost_model is not None and n > 1:  # learning for one question never pays
            reading_s, learning_s = (
                features.cost_model.seconds(features, mode, n_questions=n) for mode in order
            )
            reasons.append(
                f"over {n} questions fine-tuning takes {learning_s:.2g} s an answer, reading "
                f"{reading_s:.2g} s"
            )
            is_reversed = learning_s < reading_s
        return [*(reversed(order) if is_reversed else order), AnswerMode.BASE]


def _n_paying(features: PolicyFeatures, alpha: float | None) -> int:
    """Return the steps before the first n with σ_n > 1 / (alpha · n), where σ_0 = 1."""
    if alpha is None:
        return features.n_steps
    if not features.variance_before > 0:
        return 0
    for n, variance in enumerate(features.variances_learned, start=1):
        if sqrt(variance / features.variance_before) > 1 / (alpha * n):
            return n - 1
    return features.n_steps


def _first_in_time(
    features: PolicyFeatures, order: Sequence[AnswerMode], reasons: list[str]
) -> tuple[AnswerMode, int]:
    """Return the first mode of `order` within the latency budget, and its training steps.

    The quickest where the budget excludes every one; the first without a budget or a cost
    model. `reasons` gets a sentence for all that the budget changes.
    """
    costs, latency = features.cost_model, features.latency_s
    if latency is not None and costs is None:
        reasons.append(f"no cost model tells what fits into the {latency:.2g} s of the caller")
    if latency is None or costs is None:
        return order[0], features.n_steps
    least = {mode: costs.seconds(features, mode, 1) for mode in order}
    for mode in order:
        if least[mode] > latency:
            reasons.append(
                f"{mode.value!r} would take {least[mode]:.2g} s at least, more than the "
                f"{latency:.2g} s of the caller"
            )
            continue
        seconds = [costs.seconds(features, mode, n) for n in range(1, features.n_steps + 1)]
        n = max(1, sum(one <= latency for one in seconds))
        some = f" with {n} of {features.n_steps} training steps" if n < features.n_steps else ""
        reasons.append(
            f"{mode.value!r} takes {costs.seconds(features, mode, n):.2g} s{some}, within the "
            f"{latency:.2g} s of the caller"
        )
        return mode, n
    quickest = min(order, key=lambda mode: least[mode])
    reasons.append(f"nothing is quick enough; {quickest.value!r} is the quickest")
    return quickest, 1
