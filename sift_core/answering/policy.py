"""The choice between the ways to answer one question: what is known, and the rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from sift_core.checks import as_count, as_number, short_repr
from sift_core.errors import InvalidInputError
from sift_core.types import AnswerMode

if TYPE_CHECKING:
    from sift_core.answering.cost_model import CostModel

MODES = (AnswerMode.BASE, AnswerMode.CONTEXT, AnswerMode.FINE_TUNE, AnswerMode.BOTH)
READING = (AnswerMode.CONTEXT, AnswerMode.BOTH)
LEARNING = (AnswerMode.FINE_TUNE, AnswerMode.BOTH)
TOPIC_STEPS = 10  # of a fine-tuning: those that tell whether the documents are on the topic
MIN_EXPLAINED = 0.25


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
        can_merge: Whether there are adapters that were learned beforehand.
        latency_s: How long the caller will wait for the answer, > 0; None for any time.
        cost_model: Tells how long each mode takes on this machine; None if unknown.
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
    can_merge: bool = False
    latency_s: float | None = None
    cost_model: CostModel | None = None

    @property
    def n_steps(self) -> int:
        """Training steps at most."""
        return len(self.variances_learned)

    @property
    def explained_read(self) -> float:
        """Share of the variance at the query that reading explains, in [0, 1]."""
        return self.explained(self.variance_read)

    @property
    def explained_learned(self) -> float:
        """Likewise of the first ten steps: fifty explain a third of any query's."""
        learned = self.variances_learned[:TOPIC_STEPS]
        return self.explained(learned[-1]) if learned else 0.0

    def allows(self, way: Way) -> bool:
        """Return whether there is what this way needs."""
        if way.mode is AnswerMode.MERGED:
            return self.can_merge
        can_read = self.read_tokens > 0 or way.mode not in READING
        return can_read and way.n_steps <= self.n_steps

    def seconds(self, way: Way) -> float | None:
        """Return how long an answer takes; None if unknown."""
        costs = self.cost_model
        return None if costs is None else costs.seconds(self, way.mode, way.n_steps)

    def explained(self, variance: float) -> float:
        """Return the share of the variance at the query that is gone, in [0, 1]."""
        if not self.variance_before > 0:
            return 0.0
        return min(1.0, max(0.0, 1 - variance / self.variance_before))


@dataclass(frozen=True)
class Way:
    """A mode, and the training steps that are taken in it; 0 where it learns nothing."""

    mode: AnswerMode
    n_steps: int = 0

    def __str__(self) -> str:
        return f"{self.mode.value}, {self.n_steps} steps" if self.n_steps else self.mode.value


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
                f"a decision's `mode` must be an AnswerMode other than AUTO, "
                f"got {short_repr(self.mode)}"
            )
        if self.n_steps is not None:
            as_count("n_steps", self.n_steps, minimum=1)


class Policy(Protocol):
    """Decides in mode "auto". Any object with this method will do."""

    def decide(self, features: PolicyFeatures) -> Decision:
        """Return the mode for one question."""


@dataclass(frozen=True, kw_only=True)
class VariancePolicy:
    """What is done where nothing was calibrated: reads what fits, and learns what does not.

    1. Base, if neither what would be read nor the first ten training steps explain enough of
       the query's variance: the documents are off the topic.
    2. Context, if the chunks fit into the window; fine-tuning with all steps else.
    3. Where that exceeds the latency budget, fewer training steps, then the other, then base. If
       none is quick enough, the quickest.

    Args:
        min_explained: Share of the variance at the query that documents must explain, in
            [0, 1]. Ten documents on the topic explain 29 to 84 %, others 4 to 22 % (MiniLM,
            `benchmarks.demo_questions`).

    Raises:
        InvalidInputError: If a number is out of its range.
    """

    min_explained: float = MIN_EXPLAINED

    def __post_init__(self) -> None:
        as_number("min_explained", self.min_explained, minimum=0, maximum=1)

    def decide(self, features: PolicyFeatures) -> Decision:
        """Return the mode for one question."""
        if (off_topic := _off_topic(features, self.min_explained)) is not None:
            return off_topic
        fits = features.context_tokens <= features.room
        n, room = features.context_tokens, max(features.room, 0)
        says = "fit into" if fits else "exceed"
        reasons = [f"their {n} tokens {says} the {room} that the window has left"] if n else []
        reads = [Way(AnswerMode.CONTEXT)] if features.read_tokens else []
        learns = [Way(AnswerMode.FINE_TUNE, n) for n in range(features.n_steps, 0, -1)]
        ways = [*reads, *learns] if fits else [*learns, *reads]
        in_time = _in_time(features, [*ways, Way(AnswerMode.BASE)], reasons)
        return _decision(features, in_time[0], reasons)


@dataclass(frozen=True, kw_only=True)
class Split:
    """One way for questions below a threshold of what is known of them, another one above.

    Args:
        known: "explained_read", "explained_learned" or "question_tokens".
        threshold: Of it.
        below: The way for questions up to the threshold.
        above: The way for the others.
    """

    known: str
    threshold: float
    below: Way
    above: Way

    def way(self, features: PolicyFeatures) -> Way:
        """Return the way for a question."""
        is_below = getattr(features, self.known) <= self.threshold
        return self.below if is_below else self.above

    def __str__(self) -> str:
        name = self.known.replace("_", " ")
        return f"{self.below} where {name} <= {self.threshold:.3g}, else {self.above}"


@dataclass(frozen=True, kw_only=True)
class CalibratedPolicy:
    """Answers in the way that was best for examples of the collection.

    1. As `VariancePolicy` where the question is shorter than any that was measured.
    2. Base, if the documents are off the topic, as that tells it.
    3. The way that `split` says, if there is one.
    4. The first of the ways that can be taken.
    Ways that exceed the latency budget are left out; if all do, the quickest is taken.

    Args:
        saved: For each way, the one to be preferred first, the share of base's bits that it saved.
        n_examples: How many examples these are of.
        shortest: Tokens of the shortest question among them.
        split: A finer rule, if that was better than the first way for certain.
        min_explained: As for `VariancePolicy`.
    """

    saved: dict[Way, float]
    n_examples: int
    shortest: int = 0
    split: Split | None = None
    min_explained: float = MIN_EXPLAINED

    def decide(self, features: PolicyFeatures) -> Decision:
        """Return the mode for one question."""
        if (n := features.question_tokens) < self.shortest:
            decision = VariancePolicy(min_explained=self.min_explained).decide(features)
            reason = f"the calibration has no question as short as this one of {n} tokens"
            return replace(decision, reasons=(*decision.reasons, reason))
        if (off_topic := _off_topic(features, self.min_explained)) is not None:
            return off_topic
        reasons: list[str] = []
        ways = _in_time(features, list(filter(features.allows, self.saved)), reasons)
        if self.split is not None and (way := self.split.way(features)) in ways:
            reasons.insert(0, f"calibrated on {self.n_examples} examples: {self.split}")
            return _decision(features, way, reasons)
        saved = f"saved {self.saved[ways[0]]:.1%} of the base model's bits"
        reasons.insert(0, f"{ways[0]} {saved} on {self.n_examples} examples of the calibration")
        return _decision(features, ways[0], reasons)


def _off_topic(features: PolicyFeatures, min_explained: float) -> Decision | None:
    """Return the decision for a question that the documents say nothing on; None for others."""
    explained = max(features.explained_read, features.explained_learned)
    if explained >= min_explained:
        return None
    reason = (
        f"the best documents explain {explained:.0%} of the variance at the query, less than "
        f"{min_explained:.0%}: they are off the topic"
    )
    return Decision(mode=AnswerMode.BASE, reasons=(reason,), is_off_topic=True)


def _decision(features: PolicyFeatures, way: Way, reasons: Sequence[str]) -> Decision:
    """Return a way as a decision, told first how much its chunks explain."""
    told = {AnswerMode.CONTEXT: ("read", features.explained_read)}
    if way.n_steps:
        variance = features.variances_learned[way.n_steps - 1]
        told[way.mode] = ("learned", features.explained(variance))
    if way.mode in told:
        what, share = told[way.mode]
        reasons = [f"what is {what} explains {share:.0%} of the variance at the query", *reasons]
    n_steps = way.n_steps if 0 < way.n_steps < features.n_steps else None
    return Decision(mode=way.mode, reasons=tuple(reasons), n_steps=n_steps)


def _in_time(features: PolicyFeatures, ways: Sequence[Way], reasons: list[str]) -> list[Way]:
    """Return the ways within the latency budget in their order; if there is none, the quickest.

    `reasons` gets a sentence for what the budget changes.
    """
    latency = features.latency_s
    if latency is None:
        return list(ways)
    if features.cost_model is None:
        reasons.append(f"no cost model tells what fits into the {latency:.2g} s of the caller")
        return list(ways)
    seconds = [features.seconds(way) or 0.0 for way in ways]
    within = [way for way, one in zip(ways, seconds, strict=True) if one <= latency]
    if not within:
        quickest = ways[seconds.index(min(seconds))]
        reasons.append(
            f"nothing is quick enough for the {latency:.2g} s of the caller; {quickest} is the "
            f"quickest"
        )
        return [quickest]
    if within[0] != ways[0]:
        reasons.append(
            f"{ways[0]} would take {seconds[0]:.2g} s, more than the {latency:.2g} s of the caller"
        )
    return within
