"""A policy that learned from examples which mode predicts best, and at what price in time."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, log
from pathlib import Path
from typing import Any

import numpy as np

from sift_core.answering.policy import Decision, first_in_time
from sift_core.answering.ridge import Ridge
from sift_core.answering.situation import LEARNING, MODES, Situation
from sift_core.errors import InvalidInputError
from sift_core.types import AnswerMode, FloatArray

MIN_EXAMPLES = 12  # guess: with fewer the leave-one-out choice of the penalty is chance
FORMAT = 1
FEATURES = (
    "explained_read",  # share of σ² that what would be read explains
    "explained_first",  # share that the first training document explains: is anything near?
    "explained_learned",  # share that all training documents explain
    "log_question_tokens",  # a long question is context of its own
    "log_read_tokens",
    "log_learn_tokens",  # of all steps together
)


@dataclass(frozen=True, kw_only=True)
class CalibrationExample:
    """What each mode brought for one question.

    Args:
        situation: As the policy would have seen it.
        bits_per_byte: Of a text that should be predicted, under "base" and other modes.

    Raises:
        InvalidInputError: If "base" is missing or a number is not finite.
    """

    situation: Situation
    bits_per_byte: Mapping[AnswerMode, float]

    def __post_init__(self) -> None:
        if AnswerMode.BASE not in self.bits_per_byte:
            raise InvalidInputError("`bits_per_byte` must have a number for AnswerMode.BASE")
        for mode, value in self.bits_per_byte.items():
            if mode not in MODES or not isfinite(value):
                raise InvalidInputError(f"`bits_per_byte` of {mode!r} must be finite, got {value}")


@dataclass(frozen=True, kw_only=True)
class LearnedPolicy:
    """Takes the mode with the lowest predicted bits per byte plus the price of its time.

    The gain of each mode over base is predicted by a ridge regression on `FEATURES`, whose
    penalty is chosen by the leave-one-out error; with few or noisy examples it is so strong
    that the policy falls back to the mode that was best on average. A prediction never leaves
    the range of gains that were seen. A mode that was in too few examples is never chosen,
    base always may be.

    Made by `LearnedPolicy.fit` or `LearnedPolicy.load`.

    Args:
        gains: For each mode but base, what predicts its bits per byte minus base's.
        price_per_second: Bits per byte that a second of the caller's time is worth, >= 0. At
            0 time does not matter short of the latency budget.

    Raises:
        InvalidInputError: If the price is out of its range, or a regression does not fit.
    """

    gains: Mapping[AnswerMode, Ridge]
    price_per_second: float = 0.0

    def __post_init__(self) -> None:
        if not (isfinite(self.price_per_second) and self.price_per_second >= 0):
            raise InvalidInputError(
                f"`price_per_second` must be finite and >= 0, got {self.price_per_second}"
            )
        for mode, ridge in self.gains.items():
            if mode not in MODES or mode is AnswerMode.BASE:
                raise InvalidInputError(f"`gains` must be of context, fine_tune or both: {mode!r}")
            if len(ridge.weights) != len(FEATURES):
                raise InvalidInputError(
                    f"a regression must have {len(FEATURES)} weights, got {len(ridge.weights)}"
                )

    @classmethod
    def fit(
        cls, examples: Sequence[CalibrationExample], *, price_per_second: float = 0.0
    ) -> LearnedPolicy:
        """Return the policy that the examples teach. Takes milliseconds.

        Args:
            examples: At least `MIN_EXAMPLES`, from questions like those to come and with the
                model, the number of steps and the settings that will be used.
            price_per_second: As in the class; `dataclasses.replace` changes it later.

        Raises:
            InvalidInputError: If there are too few examples.
        """
        if len(examples) < MIN_EXAMPLES:
            raise InvalidInputError(
                f"a policy is learned from at least {MIN_EXAMPLES} examples, got {len(examples)}; "
                f"measure more, or use `VariancePolicy`"
            )
        gains = {}
        for mode in MODES[1:]:
            known = [
                e for e in examples if mode in e.bits_per_byte and mode in e.situation.possible
            ]
            if len(known) >= MIN_EXAMPLES:
                features = np.stack([features_of(e.situation) for e in known])
                gain = [e.bits_per_byte[mode] - e.bits_per_byte[AnswerMode.BASE] for e in known]
                gains[mode] = Ridge.fit(features, np.array(gain))
        return cls(gains=gains, price_per_second=price_per_second)

    def decide(self, situation: Situation) -> Decision:
        """Return the mode for one question, and the steps if the budget allows fewer."""
        cuts = {mode: self._in_time(situation, mode) for mode in situation.possible}
        costs = {
            mode: self._cost(cut, mode)
            for mode, cut in cuts.items()
            if mode in self.gains or mode is AnswerMode.BASE
        }
        order = sorted(costs, key=lambda mode: costs[mode])  # stable: the simpler mode on a tie
        reasons = [self._in_words(cuts[mode], mode) for mode in order]
        if self.price_per_second and situation.seconds is None:
            reasons.append("no cost model tells the seconds, so time has no price")
        mode, steps = first_in_time(situation, order, reasons)
        learns_less = mode in LEARNING and steps < situation.n_steps
        return Decision(mode=mode, reasons=tuple(reasons), n_steps=steps if learns_less else None)

    def predict(self, situation: Situation) -> dict[AnswerMode, float]:
        """Return the predicted bits per byte of each mode minus base's; lower is better."""
        return {
            mode: self._gain(situation, mode)
            for mode in situation.possible
            if mode in self.gains or mode is AnswerMode.BASE
        }

    def save(self, path: Path) -> None:
        """Write the policy as JSON."""
        record = {
            "format": FORMAT,
            "features": list(FEATURES),
            "price_per_second": self.price_per_second,
            "gains": {mode.value: ridge.as_record() for mode, ridge in self.gains.items()},
        }
        path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> LearnedPolicy:
        """Return the policy that `save` wrote.

        Raises:
            InvalidInputError: If the file is missing, or holds no such policy.
        """
        try:
            return cls._from_record(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise InvalidInputError(
                f"{path} holds no policy that this version can read: {error}; fit it again"
            ) from error

    @classmethod
    def _from_record(cls, record: Any) -> LearnedPolicy:
        if record["format"] != FORMAT or record["features"] != list(FEATURES):
            raise InvalidInputError("it is of another version")
        gains = {AnswerMode(mode): Ridge.from_record(r) for mode, r in record["gains"].items()}
        return cls(gains=gains, price_per_second=float(record["price_per_second"]))

    def _in_time(self, situation: Situation, mode: AnswerMode) -> Situation:
        """Return the situation with the steps that the latency budget leaves, if any."""
        if mode not in LEARNING:
            return situation
        steps = situation.steps_in_time(mode)
        return situation.cut(max(1, situation.n_steps if steps is None else steps))

    def _gain(self, situation: Situation, mode: AnswerMode) -> float:
        if mode is AnswerMode.BASE:
            return 0.0
        return self.gains[mode].predict(features_of(situation))

    def _seconds(self, situation: Situation, mode: AnswerMode) -> float:
        if situation.seconds is None:
            return 0.0
        return situation.seconds.each(mode, n_questions=situation.n_questions)

    def _cost(self, situation: Situation, mode: AnswerMode) -> float:
        gain = self._gain(situation, mode)
        return gain + self.price_per_second * self._seconds(situation, mode)

    def _in_words(self, situation: Situation, mode: AnswerMode) -> str:
        words = f"{mode.value!r} is predicted to take "
        if mode is AnswerMode.BASE:
            words = f"{mode.value!r} is what gains are counted from"
        else:
            words += f"{self._gain(situation, mode):+.3f} bits per byte"
            words += f" (± {self.gains[mode].error:.3f})"
        if self.price_per_second and situation.seconds is not None:
            seconds = self._seconds(situation, mode)
            words += (
                f"; its {seconds:.2g} s cost {self.price_per_second * seconds:.3f} at "
                f"{self.price_per_second:g} a second"
            )
        return words


def features_of(situation: Situation) -> FloatArray:
    """Return the numbers that gains are predicted from, in the order of `FEATURES`, float64."""
    return np.array(
        [
            situation.explained_read,
            situation.cut(1).explained_learned,
            situation.explained_learned,
            log(1 + situation.question_tokens),
            log(1 + situation.read_tokens),
            log(1 + sum(situation.learn_tokens)),
        ]
    )
