"""The choice between base, context and fine-tuning for one query: the protocol and the rule.

Paper symbols: σ_n → the square root of `variances_learned[n - 1]` over `variance_before`;
α → `VariancePolicy.alpha`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Protocol

from sift_core.answering.policy_features import LEARNING, PolicyFeatures
from sift_core.checks import as_count
from sift_core.errors import InvalidInputError
from sift_core.types import AnswerMode

TOPIC_STEPS = 10  # of a fine-tuning: those that tell whether the documents are on the topic


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
