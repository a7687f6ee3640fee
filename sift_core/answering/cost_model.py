"""What is known of a question, the ways to answer it, and what each of them costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count, pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from sift_core.answering.settings import FineTuningSettings
from sift_core.checks import as_finite_array, as_number, short_repr
from sift_core.errors import InvalidInputError
from sift_core.types import AnswerMode

if TYPE_CHECKING:  # commands do without torch until they need a model
    from sift_core.answering.model.language_model import LanguageModel

READING = (AnswerMode.CONTEXT, AnswerMode.BOTH, AnswerMode.LEARNED_CONTEXT)
LEARNING = (AnswerMode.FINE_TUNE, AnswerMode.BOTH)
BEFOREHAND = (AnswerMode.LEARNED, AnswerMode.LEARNED_CONTEXT)  # with the adapter of `sift learn`
TOPIC_STEPS = 10  # training steps that show whether the documents are on the topic

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
    """A mode, and the training steps that are taken in it; 0 where nothing is learned.

    Example:
        >>> from sift_core import AnswerMode
        >>> learning = Strategy(AnswerMode.FINE_TUNE, n_steps=10)
        >>> learning.mode.value, learning.n_steps
        ('fine_tune', 10)
    """

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
        has_adapter: Whether there is an adapter that was learned beforehand. Default: False.
        latency_s: Seconds that the caller will wait for the answer, > 0. Default: any time.
        can_learn: Whether whoever writes takes what is learned. Default: True.
        nearest: Cosine of the nearest candidate with the question, in [-1, 1].
        topic_floor: The least that it has on the topic, as `topic_floor` reads it from the pool.
            None if the candidates are too few for that. Default: None.
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
    has_adapter: bool = False
    latency_s: float | None = None
    can_learn: bool = True
    nearest: float = 1.0
    topic_floor: float | None = None

    @property
    def n_steps(self) -> int:
        """Training steps at most."""
        return len(self.variances_learned) if self.can_learn else 0

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
        can_read = self.read_tokens > 0 or strategy.mode not in READING
        if strategy.mode in BEFOREHAND:
            return can_read and self.has_adapter and self.can_learn
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

    Example:
        >>> costs = CostModel.measure(language_model, aim_s=0)
        >>> costs.new_token_s > 0
        True
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

        as_number("aim_s", aim_s, minimum=0)
        settings = replace(settings or FineTuningSettings(), max_seconds=None)
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
        if mode in (*LEARNING, *BEFOREHAND):
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

    def least_s(n_tokens: int, n_new: int = 1) -> tuple[int, float]:
        measured: list[float] = []
        while len(measured) < 2 or (len(measured) <= REPEATS and time.perf_counter() < deadline):
            prompt = _text(language_model, n_tokens - N_NEW - 1)
            started = time.perf_counter()
            language_model.generate(prompt, max_new_tokens=n_new, min_new_tokens=n_new)
            measured.append(time.perf_counter() - started)
        # The first of its length allocates.
        return len(language_model.prompt_ids(prompt)), min(measured[1:])

    new_token_s = (least_s(2, 1 + N_NEW)[1] - least_s(2)[1]) / N_NEW
    prefill = _curve(language_model, LONGEST_READ, least_s, deadline)
    return prefill, max(0.0, new_token_s)


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
