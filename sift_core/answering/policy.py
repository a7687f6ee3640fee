"""Choose how to answer one question: what is known of it, what it costs, and the rules."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count, pairwise
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np

from sift_core.checks import as_count, as_finite_array, as_number, short_repr
from sift_core.errors import InvalidInputError
from sift_core.types import AnswerMode

if TYPE_CHECKING:
    from sift_core.answering.model.language_model import LanguageModel
    from sift_core.answering.settings import FineTuningSettings

READING = (AnswerMode.CONTEXT, AnswerMode.BOTH)
LEARNING = (AnswerMode.FINE_TUNE, AnswerMode.BOTH)
TOPIC_STEPS = 10  # training steps that show whether the documents are on the topic
MIN_EXPLAINED = 0.25
ON_OFF_TOPIC = ("refuse", "base")

# Tokens; what is longer is extrapolated. A prompt of ten chunks has 1,000 to 3,000, a chunk 300.
LONGEST_READ, LONGEST_STEP = 2048, 1024
LENGTHS = (1 / 16, 1 / 4, 1.0)  # of the longest length: where the lines bend
N_NEW = 8  # tokens written to time one
REPEATS = 3  # what is kept is the least: a busy moment must not count for ever
SENTENCE = "Seven of the 38 old ships were sold; nobody asked why, or at what price.\n"
_numbers = count()  # of texts that were made to be timed

Curve: TypeAlias = Sequence[tuple[int, float]]


@dataclass(frozen=True)
class Strategy:
    """A mode, and the training steps that are taken in it; 0 where nothing is learned."""

    mode: AnswerMode
    n_steps: int = 0

    def __str__(self) -> str:
        return f"{self.mode.value}, {self.n_steps} steps" if self.n_steps else self.mode.value


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
        can_merge: Whether there is an adapter that was learned beforehand. Default: False.
        latency_s: Seconds that the caller will wait for the answer, > 0. Default: any time.
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
        """Share that the first ten training steps explain: fifty explain a third of any query's."""
        learned = self.variances_learned[:TOPIC_STEPS]
        return self.explained(learned[-1]) if learned else 0.0

    def allows(self, strategy: Strategy) -> bool:
        """Return whether there is what a strategy needs."""
        if strategy.mode is AnswerMode.MERGED:
            return self.can_merge
        can_read = self.read_tokens > 0 or strategy.mode not in READING
        return can_read and strategy.n_steps <= self.n_steps

    def explained(self, variance: float) -> float:
        """Return the share of the variance at the query that is gone, in [0, 1]."""
        if not self.variance_before > 0:
            return 0.0
        return min(1.0, max(0.0, 1 - variance / self.variance_before))


@dataclass(frozen=True, kw_only=True)
class CostModel:
    """Seconds by tokens, each as a broken line through lengths that were measured.

    Beyond the longest length the last piece goes on: attention's square is underestimated there.

    Args:
        prefill: (tokens, seconds) of reading a prompt, at least two, lengths ascending.
        adapted_prefill: The same with an adapter active.
        step: The same for a training step on one chunk.
        new_token_s: Seconds to write a token.
        adapted_new_token_s: The same with an adapter active.
        setup_s: Seconds to put an adapter in and out again.

    Raises:
        InvalidInputError: If a number is negative or not finite, or a curve cannot be used.
    """

    prefill: Curve
    adapted_prefill: Curve
    step: Curve
    new_token_s: float
    adapted_new_token_s: float
    setup_s: float

    def __post_init__(self) -> None:
        for name in ("prefill", "adapted_prefill", "step"):  # lists where they come from JSON
            object.__setattr__(self, name, _as_curve(name, getattr(self, name)))
        for name in ("new_token_s", "adapted_new_token_s", "setup_s"):
            as_number(name, getattr(self, name), minimum=0)

    @classmethod
    def measure(
        cls,
        language_model: LanguageModel,
        settings: FineTuningSettings | None = None,
        *,
        aim_s: float = 4.0,
    ) -> CostModel:
        """Return the costs of a model, measured now on an idle machine.

        Args:
            language_model: The model.
            settings: How it learns. Default: the paper's settings.
            aim_s: Seconds to measure for, >= 0, a third for each curve. After them nothing is
                repeated and no third length is tried. What was begun is ended, so that all takes
                up to twice as long, and longer with a large model. Default: 4.

        Raises:
            AnswerError: If the model fails.
        """
        from sift_core.answering.fine_tuning import fine_tuned  # with torch
        from sift_core.answering.settings import FineTuningSettings

        as_number("aim_s", aim_s, minimum=0)
        settings = settings or FineTuningSettings()
        settings = replace(settings, max_seconds=None)
        with fine_tuned(language_model, [_text(language_model, 2)], settings):
            adapted_prefill, adapted_new_token_s = _generation_costs(language_model, aim_s / 3)
        prefill, new_token_s = _generation_costs(language_model, aim_s / 3)
        step, setup_s = _learning_costs(language_model, settings, aim_s / 3)
        return cls(
            prefill=prefill,
            adapted_prefill=adapted_prefill,
            step=step,
            new_token_s=new_token_s,
            adapted_new_token_s=adapted_new_token_s,
            setup_s=setup_s,
        )

    def answer_s(self, features: PolicyFeatures, mode: AnswerMode) -> float:
        """Return the seconds from a model that is ready to the end of the longest answer."""
        curve, token_s = self.prefill, self.new_token_s
        if mode in (*LEARNING, AnswerMode.MERGED):
            curve, token_s = self.adapted_prefill, self.adapted_new_token_s
        n_read = features.question_tokens + (features.read_tokens if mode in READING else 0)
        return seconds_at(curve, n_read) + features.max_new_tokens * token_s

    def seconds(self, features: PolicyFeatures, strategy: Strategy) -> float:
        """Return the seconds of an answer, its training steps included."""
        answer_s = self.answer_s(features, strategy.mode)
        if strategy.mode not in LEARNING:
            return answer_s
        steps = (seconds_at(self.step, n) for n in features.learn_tokens[: strategy.n_steps])
        return answer_s + self.setup_s + sum(steps)


def seconds_at(curve: Curve, n_tokens: int) -> float:
    """Return the seconds of `n_tokens` tokens on a broken line, >= 0."""
    i = sum(n < n_tokens for n, _ in curve[1:-1])  # the piece that has it, or is next to it
    (n0, s0), (n1, s1) = curve[i], curve[i + 1]
    return max(0.0, s0 + (s1 - s0) * (n_tokens - n0) / (n1 - n0))


def _as_curve(name: str, curve: object) -> Curve:
    pairs = as_finite_array(name, curve, n_dimensions=2)
    is_curve = len(pairs) >= 2 and pairs.shape[1] == 2 and (pairs >= 0).all()
    if not (is_curve and (np.diff(pairs[:, 0]) > 0).all()):
        raise InvalidInputError(
            f"`{name}` must be at least two pairs (tokens, seconds) >= 0, tokens ascending, got "
            f"{short_repr(curve)}"
        )
    return tuple((int(n), float(seconds)) for n, seconds in pairs)


def _generation_costs(language_model: LanguageModel, aim_s: float) -> tuple[Curve, float]:
    """Return the seconds of reading prompts, and of each token that is written."""
    deadline = time.perf_counter() + aim_s

    def least_s(n_tokens: int, n_new: int) -> tuple[int, float]:
        measured: list[float] = []
        while len(measured) < 2 or (len(measured) <= REPEATS and time.perf_counter() < deadline):
            prompt = _text(language_model, n_tokens - N_NEW - 1)
            started = time.perf_counter()
            language_model.generate(prompt, max_new_tokens=n_new, min_new_tokens=n_new)
            measured.append(time.perf_counter() - started)
        # The first of its length allocates.
        return len(language_model.prompt_ids(prompt)), min(measured[1:])

    (_, one), (_, more) = least_s(2, 1), least_s(2, 1 + N_NEW)
    prefill = _curve(language_model, LONGEST_READ, lambda n: least_s(n, 1), deadline)
    return prefill, max(0.0, more - one) / N_NEW


def _learning_costs(
    language_model: LanguageModel, settings: FineTuningSettings, aim_s: float
) -> tuple[Curve, float]:
    """Return the seconds of training steps, and of all else that an adapter takes."""
    from sift_core.answering.fine_tuning import fine_tuned

    deadline = time.perf_counter() + aim_s
    setups: list[float] = []

    def step_s(n_tokens: int) -> tuple[int, float]:
        n_steps = 1 + (REPEATS if time.perf_counter() < deadline else 1)
        texts = [_text(language_model, n_tokens) for _ in range(n_steps)]
        moments = [time.perf_counter()]
        with fine_tuned(
            language_model, texts, settings, on_step=lambda _: moments.append(time.perf_counter())
        ):
            over = time.perf_counter() - moments[-1]
        least = min(after - before for before, after in pairwise(moments[1:]))
        setups.append(max(0.0, moments[1] - moments[0] - least) + over)
        return language_model.n_tokens(texts[0]), least

    return _curve(language_model, LONGEST_STEP, step_s, deadline), min(setups)


def _curve(
    language_model: LanguageModel,
    longest: int,
    measure: Callable[[int], tuple[int, float]],
    deadline: float,
) -> Curve:
    """Return (tokens, seconds) by length, none quicker than a shorter one: that would be noise."""
    curve: dict[int, float] = {}
    longest = min(longest, language_model.window)
    for i, share in enumerate(LENGTHS):
        if i < 2 or time.perf_counter() < deadline:
            n, seconds = measure(max(1 + i, int(longest * share)))
            curve[n] = max(seconds, *curve.values(), 0.0)
    if len(curve) == 1:  # a window so small that all lengths are one
        n, seconds = next(iter(curve.items()))
        curve[n + 1] = seconds
    return tuple(sorted(curve.items()))


def _text(language_model: LanguageModel, n_tokens: int) -> str:
    """Return a text of about `n_tokens` tokens, at least 2, that begins like no other one."""
    n_tokens = max(2, n_tokens)
    ids = language_model.token_ids(f"{next(_numbers)}. " + SENTENCE * (1 + n_tokens // 8))
    return str(language_model.tokenizer.decode(ids[:n_tokens]))


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
    """Decides in mode "auto". Any object with these two will do."""

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

    1. Base, if neither what would be read nor the first ten training steps explain enough of
       the query's variance: the documents are off the topic.
    2. Context, if the chunks fit into the window; fine-tuning with all steps else.
    3. Where that exceeds the latency budget, fewer training steps, then the other, then base. If
       none is quick enough, the quickest.

    Args:
        min_explained: Share of the variance at the query that documents must explain, in
            [0, 1]. Ten documents on the topic explain 29 to 84 %, others 4 to 22 % (MiniLM,
            `benchmarks.demo_questions`). Default: 0.25.
        on_off_topic: What to do if the documents have nothing on the question: "refuse" answers
            with a sentence that says so, "base" lets the model answer. Default: "refuse".
        cost_model: Seconds of every mode on this machine, from `CostModel.measure`, for latency
            budgets. Default: none, and budgets change no mode.

    Raises:
        InvalidInputError: If a value is out of its range.
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
        if explained >= self.min_explained:
            return None
        reason = (
            f"the best documents explain {explained:.0%} of the variance at the query, less than "
            f"{self.min_explained:.0%}: they are off the topic"
        )
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
