"""How long answering takes on this machine, predicted from a few seconds of measuring."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count, pairwise
from typing import TypeAlias

import numpy as np

from sift_core.answering.learning.fine_tuning import fine_tuned
from sift_core.answering.learning.settings import FineTuningSettings
from sift_core.answering.model.language_model import LanguageModel
from sift_core.answering.policy import LEARNING, READING, PolicyFeatures
from sift_core.checks import as_finite_array, as_number, short_repr
from sift_core.errors import InvalidInputError
from sift_core.types import AnswerMode

# Tokens; what is longer is extrapolated. A prompt of ten chunks has 1,000 to 3,000, a chunk 300.
LONGEST_READ, LONGEST_STEP = 2048, 1024
SHARES = (1 / 16, 1 / 4, 1.0)  # of the longest length: where the lines bend
N_NEW = 8  # tokens written to time one
REPEATS = 3  # what is kept is the least: a busy moment must not count for ever
SENTENCE = "Seven of the 38 old ships were sold; nobody asked why, or at what price.\n"

_numbers = count()  # of texts that were made to be timed

Curve: TypeAlias = Sequence[tuple[int, float]]


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
        InvalidInputError: If a number is negative or not finite, or a curve none.
    """

    prefill: Curve
    adapted_prefill: Curve
    step: Curve
    new_token_s: float
    adapted_new_token_s: float
    setup_s: float

    def __post_init__(self) -> None:
        for name in ("prefill", "adapted_prefill", "step"):  # lists where they come from JSON
            object.__setattr__(self, name, _checked_curve(name, getattr(self, name)))
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
            settings: How it learns; the paper's if None.
            aim_s: In each third of so many seconds one curve is measured; when it is over, nothing
                is repeated and no third length is tried. What was begun is ended, so that all
                takes up to twice as long, and longer with a large model.

        Raises:
            AnswerError: If the model fails.
        """
        as_number("aim_s", aim_s, minimum=0)
        settings = settings or FineTuningSettings()
        settings = replace(settings, max_seconds=None)
        with fine_tuned(language_model, [_text(language_model, 2)], settings):
            adapted_prefill, adapted_new_token_s = _generation(language_model, aim_s / 3)
        prefill, new_token_s = _generation(language_model, aim_s / 3)
        step, setup_s = _learning(language_model, settings, aim_s / 3)
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
        curve, each = self.prefill, self.new_token_s
        if mode in (*LEARNING, AnswerMode.MERGED):
            curve, each = self.adapted_prefill, self.adapted_new_token_s
        n_read = features.question_tokens + (features.read_tokens if mode in READING else 0)
        return seconds_at(curve, n_read) + features.max_new_tokens * each

    def seconds(
        self, features: PolicyFeatures, mode: AnswerMode, n_steps: int | None = None
    ) -> float:
        """Return the seconds of an answer after `n_steps` training steps, all of them if None."""
        if mode not in LEARNING:
            return self.answer_s(features, mode)
        steps = (seconds_at(self.step, n) for n in features.learn_tokens[:n_steps])
        return self.answer_s(features, mode) + self.setup_s + sum(steps)


def _checked_curve(name: str, curve: object) -> Curve:
    """Return a curve as pairs of numbers; refuse what is none."""
    pairs = as_finite_array(name, curve, n_dimensions=2)
    is_curve = len(pairs) >= 2 and pairs.shape[1] == 2 and (pairs >= 0).all()
    if not (is_curve and (np.diff(pairs[:, 0]) > 0).all()):
        raise InvalidInputError(
            f"`{name}` must be at least two pairs (tokens, seconds) >= 0, tokens ascending, got "
            f"{short_repr(curve)}"
        )
    return tuple((int(n), float(seconds)) for n, seconds in pairs)


def seconds_at(curve: Curve, n_tokens: int) -> float:
    """Return the seconds of so many tokens on a broken line, >= 0."""
    i = sum(n < n_tokens for n, _ in curve[1:-1])  # the piece that has it, or is next to it
    (n0, s0), (n1, s1) = curve[i], curve[i + 1]
    return max(0.0, s0 + (s1 - s0) * (n_tokens - n0) / (n1 - n0))


def _generation(language_model: LanguageModel, aim_s: float) -> tuple[Curve, float]:
    """Return the seconds of reading prompts, and of each token that is written."""
    deadline = time.perf_counter() + aim_s

    def least_s(n_tokens: int, n_new: int) -> tuple[int, float]:
        taken: list[float] = []
        while len(taken) < 2 or (len(taken) <= REPEATS and time.perf_counter() < deadline):
            prompt = _text(language_model, n_tokens - N_NEW - 1)
            started = time.perf_counter()
            language_model.generate(prompt, max_new_tokens=n_new, min_new_tokens=n_new)
            taken.append(time.perf_counter() - started)
        # The first of its length allocates.
        return len(language_model.prompt_ids(prompt)), min(taken[1:])

    (_, one), (_, more) = least_s(2, 1), least_s(2, 1 + N_NEW)
    prefill = _curve(language_model, LONGEST_READ, lambda n: least_s(n, 1), deadline)
    return prefill, max(0.0, more - one) / N_NEW


def _learning(
    language_model: LanguageModel, settings: FineTuningSettings, aim_s: float
) -> tuple[Curve, float]:
    """Return the seconds of training steps, and of all else that an adapter takes."""
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
    timed: Callable[[int], tuple[int, float]],
    deadline: float,
) -> Curve:
    """Return (tokens, seconds) by length, none quicker than a shorter one: that would be noise."""
    curve: dict[int, float] = {}
    longest = min(longest, language_model.window)
    for i, share in enumerate(SHARES):
        if i < 2 or time.perf_counter() < deadline:
            n, seconds = timed(max(1 + i, int(longest * share)))
            curve[n] = max(seconds, *curve.values(), 0.0)
    if len(curve) == 1:  # a window so small that all lengths are one
        n, seconds = next(iter(curve.items()))
        curve[n + 1] = seconds
    return tuple(sorted(curve.items()))


def _text(language_model: LanguageModel, n_tokens: int) -> str:
    """Return a text of about so many tokens, at least 2, that begins like no other one."""
    n_tokens = max(2, n_tokens)
    ids = language_model.token_ids(f"{next(_numbers)}. " + SENTENCE * (1 + n_tokens // 8))
    return str(language_model.tokenizer.decode(ids[:n_tokens]))
