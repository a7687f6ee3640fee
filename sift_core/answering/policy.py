"""Choose how to answer one question: decisions, and the rules of two policies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from sift_core.answering.cost_model import CostModel, PolicyFeatures, Strategy
from sift_core.checks import as_count, as_number, short_repr
from sift_core.errors import InvalidInputError
from sift_core.types import AnswerMode

MIN_EXPLAINED = 0.25
ON_OFF_TOPIC = ("refuse", "base")


@dataclass(frozen=True, kw_only=True)
class Decision:
    """A mode and why.

    Args:
        mode: Never AUTO.
        reasons: One sentence each, with the numbers that it rests on.
        n_steps: How many of the chosen training steps to take, >= 1. Default: all of them.
        is_off_topic: Whether the documents have nothing on the question. The policy's
            `on_off_topic` then says whether to refuse. Default: False.
        answer_s: Predicted seconds of reading and writing, kept free of training steps where the
            caller has a latency. Default: 0.

    Raises:
        InvalidInputError: If the mode is AUTO or no mode, or `n_steps` < 1.
    """

    mode: AnswerMode
    reasons: tuple[str, ...]
    n_steps: int | None = None
    is_off_topic: bool = False
    answer_s: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.mode, AnswerMode) or self.mode is AnswerMode.AUTO:
            raise InvalidInputError(
                f"a decision's `mode` must be an AnswerMode other than AUTO, "
                f"got {short_repr(self.mode)}"
            )
        if self.n_steps is not None:
            as_count("n_steps", self.n_steps, minimum=1)


class Policy(Protocol):
    """Decides in mode "auto". Any object with `on_off_topic` and `decide` will do."""

    @property
    def on_off_topic(self) -> str:
        """Answer to a question that is off the topic: "refuse" or "base"."""

    def decide(self, features: PolicyFeatures) -> Decision:
        """Return the mode for one question."""


def check_policy(policy: Policy) -> None:
    """Refuse a policy that cannot decide.

    Raises:
        InvalidInputError: If it lacks `decide`, or its `on_off_topic` is not known.
    """
    on_off_topic = getattr(policy, "on_off_topic", None)
    if not (isinstance(on_off_topic, str) and on_off_topic in ON_OFF_TOPIC):
        raise InvalidInputError(
            f"a policy's `on_off_topic` must be 'refuse' or 'base', got {short_repr(on_off_topic)}"
        )
    if not callable(getattr(policy, "decide", None)):
        raise InvalidInputError(f"`policy` must have a method `decide`, got {short_repr(policy)}")


@dataclass(frozen=True, kw_only=True)
class VariancePolicy:
    """Reads what fits, and learns what does not. The policy of a collection without calibration.

    1. Base, if the documents are off the topic: the nearest candidate is less like the question
       than `sift_core.selection.topic.topic_floor` says. With fewer than 20 different candidates,
       if neither what would be read nor ten training steps explain enough of the variance.
    2. Context, if the chunks fit into the window; fine-tuning with all steps else.
    3. Where that exceeds the latency budget, fewer training steps, then the other, then base. If
       none is quick enough, the quickest.

    Args:
        min_explained: Share of the variance at the query that fewer than 20 documents must
            explain, in [0, 1]. With 0 no question is off the topic. Ten documents on the topic
            explain 29 to 84 %, others 4 to 22 % (MiniLM, `benchmarks.demo_questions` of the tag
            `evidence-2026-11b`). Default: 0.25.
        on_off_topic: What to do if the documents have nothing on the question: "refuse" answers
            with a sentence that says so, "base" lets the model answer. Default: "refuse".
        cost_model: Seconds of every mode on this machine, from `CostModel.measure`, for latency
            budgets. Default: none, and budgets change no mode.

    Raises:
        InvalidInputError: If a value is out of its range.

    Example:
        >>> from dataclasses import replace
        >>> careful = replace(engine, policy=VariancePolicy(on_off_topic="base"))
        >>> careful.choose("When does the ferry sail?").mode.value
        'context'
    """

    min_explained: float = MIN_EXPLAINED
    on_off_topic: str = "refuse"
    cost_model: CostModel | None = None

    def __post_init__(self) -> None:
        as_number("min_explained", self.min_explained, minimum=0, maximum=1)
        check_policy(self)

    def decide(self, features: PolicyFeatures) -> Decision:
        """Return the mode for one question."""
        if (off_topic := self._off_topic(features)) is not None:
            return off_topic
        n, room = features.context_tokens, max(features.room, 0)
        fits = n <= features.room
        verb = "fit into" if fits else "exceed"
        reasons = [f"their {n} tokens {verb} the {room} that the window has left"] if n else []
        reading = [Strategy(AnswerMode.CONTEXT)] if features.read_tokens else []
        learning = [Strategy(AnswerMode.FINE_TUNE, n) for n in range(features.n_steps, 0, -1)]
        preferred = [*reading, *learning] if fits else [*learning, *reading]
        in_time = self._in_time(features, [*preferred, Strategy(AnswerMode.BASE)], reasons)
        return self._decision(features, in_time[0], reasons)

    def _off_topic(self, features: PolicyFeatures) -> Decision | None:
        """Return the decision for a question that is off the topic, else None."""
        explained = max(features.explained_read, features.explained_learned)
        if features.topic_floor is not None:
            is_on_topic = features.nearest >= features.topic_floor
            reason = (
                f"the nearest document has cosine {features.nearest:.2f} with the question, and "
                f"one on the topic of these documents {features.topic_floor:.2f} or more: they are "
                f"off the topic"
            )
        else:
            is_on_topic = explained >= self.min_explained
            reason = (
                f"the best documents explain {explained:.0%} of the variance at the query, less "
                f"than {self.min_explained:.0%}: they are off the topic"
            )
        if is_on_topic or not self.min_explained:
            return None
        return Decision(mode=AnswerMode.BASE, reasons=(reason,), is_off_topic=True)

    def _decision(
        self, features: PolicyFeatures, strategy: Strategy, reasons: Sequence[str]
    ) -> Decision:
        """Return a strategy as a decision, with how much its chunks explain as first reason."""
        mode, n_steps = strategy.mode, strategy.n_steps
        explained = {AnswerMode.CONTEXT: ("read", features.explained_read)}
        if n_steps:
            share = features.explained(features.variances_learned[n_steps - 1])
            explained[mode] = ("learned", share)
        if mode in explained:
            verb, share = explained[mode]
            reasons = [
                f"what is {verb} explains {share:.0%} of the variance at the query",
                *reasons,
            ]
        return Decision(
            mode=mode,
            reasons=tuple(reasons),
            n_steps=n_steps if 0 < n_steps < features.n_steps else None,
            answer_s=0.0 if self.cost_model is None else self.cost_model.answer_s(features, mode),
        )

    def _in_time(
        self, features: PolicyFeatures, strategies: Sequence[Strategy], reasons: list[str]
    ) -> list[Strategy]:
        """Return the strategies within the latency budget in order; if there is none, the quickest.

        `reasons` gets a sentence for what the budget changes.
        """
        latency = features.latency_s
        if latency is None:
            return list(strategies)
        if self.cost_model is None:
            reasons.append(
                f"there is no cost model, so the limit of {latency:.2g} s changes nothing"
            )
            return list(strategies)
        seconds = [self.cost_model.seconds(features, one) for one in strategies]
        within = [one for one, s in zip(strategies, seconds, strict=True) if s <= latency]
        if not within:
            quickest = strategies[seconds.index(min(seconds))]
            reasons.append(
                f"nothing is quick enough for the {latency:.2g} s of the caller; {quickest} is the "
                f"quickest"
            )
            return [quickest]
        if within[0] != strategies[0]:
            reasons.append(
                f"{strategies[0]} would take {seconds[0]:.2g} s, more than the {latency:.2g} s of "
                f"the caller"
            )
        return within


@dataclass(frozen=True, kw_only=True)
class CalibratedPolicy(VariancePolicy):
    """Takes the strategy that was best for examples of the collection.

    1. As `VariancePolicy` where the question is shorter than any that was measured.
    2. Base, if the documents are off the topic.
    3. The first of the strategies that can be taken.
    Strategies that exceed the latency budget are left out; if all do, the quickest is taken.

    Args:
        saved: For each strategy, best first, the share of base's bits that it saved.
        n_examples: Number of measured examples.
        shortest: Tokens of the shortest question among them. Default: 0.
        min_explained: As for `VariancePolicy`, like the next two.
        on_off_topic: What to do if the documents have nothing on the question.
        cost_model: Seconds of every mode on this machine.
    """

    saved: dict[Strategy, float]
    n_examples: int
    shortest: int = 0

    def decide(self, features: PolicyFeatures) -> Decision:
        """Return the mode for one question."""
        if (n := features.question_tokens) < self.shortest:
            decision = super().decide(features)
            reason = f"the calibration has no question as short as this one of {n} tokens"
            return replace(decision, reasons=(*decision.reasons, reason))
        if (off_topic := self._off_topic(features)) is not None:
            return off_topic
        reasons: list[str] = []
        best = self._in_time(features, list(filter(features.allows, self.saved)), reasons)[0]
        saved = f"saved {self.saved[best]:.1%} of the base model's bits"
        reasons.insert(0, f"{best} {saved} on {self.n_examples} examples of the calibration")
        return self._decision(features, best, reasons)
