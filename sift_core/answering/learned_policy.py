"""A policy that learned from examples which mode predicts best, and at what price in time."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite, log
from pathlib import Path
from typing import Any

import numpy as np

from sift_core.answering.policy import LEARNING, MODES, Decision, PolicyFeatures, first_in_time
from sift_core.errors import InvalidInputError
from sift_core.types import AnswerMode, FloatArray

MIN_EXAMPLES = 12  # guess: with fewer the leave-one-out choice of the penalty is chance
PENALTIES = tuple(10.0**power for power in range(-3, 5))  # times the number of examples
MIN_SCALE = 1e-9  # an input that varies less is a constant up to rounding
FORMAT = 1  # of the file
INPUTS = (
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
        features: What the policy would have known.
        bits_per_byte: Of a text that should be predicted, under "base" and other modes.

    Raises:
        InvalidInputError: If "base" is missing or a number is not finite.
    """

    features: PolicyFeatures
    bits_per_byte: Mapping[AnswerMode, float]

    def __post_init__(self) -> None:
        if AnswerMode.BASE not in self.bits_per_byte:
            raise InvalidInputError("`bits_per_byte` must have a number for AnswerMode.BASE")
        for mode, value in self.bits_per_byte.items():
            if mode not in MODES or not isfinite(value):
                raise InvalidInputError(f"`bits_per_byte` of {mode!r} must be finite, got {value}")


@dataclass(frozen=True, kw_only=True)
class Ridge:
    """A linear prediction that never leaves the range of values it was fitted to.

    Args:
        weights: Of the inputs as they come, not scaled.
        intercept: The prediction at zero.
        low: The least value seen.
        high: The greatest value seen.
        error: Root of the mean squared leave-one-out error, in units of the values.
    """

    weights: tuple[float, ...]
    intercept: float
    low: float
    high: float
    error: float

    @classmethod
    def fit(cls, inputs: FloatArray, values: FloatArray) -> Ridge:
        """Return the regression of `values` (n,) on `inputs` (n, d), n >= 2.

        The inputs are scaled to unit variance, the mean is not penalised, and the penalty is
        that of `PENALTIES` with the least leave-one-out error. Leaving one out takes no second
        fit: its error is the residual over one minus its leverage.

        References:
            Allen (1974), Technometrics 16, on the PRESS statistic.
        """
        n, centre, mean = len(values), inputs.mean(axis=0), values.mean()
        scales = inputs.std(axis=0)
        scales = np.where(scales > MIN_SCALE, scales, np.inf)  # a constant gets no weight
        left, singular, right = np.linalg.svd((inputs - centre) / scales, full_matrices=False)
        projected = left.T @ (values - mean)
        best, least = singular, float("inf")
        for penalty in reversed(PENALTIES):  # of equals the strongest
            shrink = singular**2 / (singular**2 + n * penalty)
            residuals = values - mean - left @ (shrink * projected)
            leverages = (left**2) @ shrink + 1 / n
            error = float(np.sqrt(np.mean((residuals / (1 - leverages)) ** 2)))
            if error < least:
                best, least = singular / (singular**2 + n * penalty), error
        weights = (right.T @ (best * projected)) / scales
        return cls(
            weights=tuple(weights.tolist()),
            intercept=float(mean - centre @ weights),
            low=float(values.min()),
            high=float(values.max()),
            error=least,
        )

    def predict(self, inputs: FloatArray) -> float:
        """Return the prediction for inputs of shape (d,)."""
        value = self.intercept + float(np.dot(self.weights, inputs))
        return min(self.high, max(self.low, value))


@dataclass(frozen=True, kw_only=True)
class LearnedPolicy:
    """Takes the mode with the lowest predicted bits per byte plus the price of its time.

    The gain of each mode over base is predicted by a ridge regression on `INPUTS`. With few or
    noisy examples its penalty is so strong that the mode that was best on average is taken.
    A mode that was in too few examples is never taken, base always may be.

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
            if mode not in MODES[1:] or len(ridge.weights) != len(INPUTS):
                raise InvalidInputError(
                    f"`gains` must be of context, fine_tune or both, with {len(INPUTS)} weights "
                    f"each, got {len(ridge.weights)} of {mode!r}"
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
            known = [e for e in examples if mode in e.bits_per_byte and mode in e.features.possible]
            if len(known) >= MIN_EXAMPLES:
                inputs = np.stack([inputs_of(e.features) for e in known])
                gain = [e.bits_per_byte[mode] - e.bits_per_byte[AnswerMode.BASE] for e in known]
                gains[mode] = Ridge.fit(inputs, np.array(gain))
        return cls(gains=gains, price_per_second=price_per_second)

    def decide(self, features: PolicyFeatures) -> Decision:
        """Return the mode for one question, and the steps if the budget allows fewer."""
        in_time = {mode: _in_time(features, mode) for mode in self._known(features)}
        costs = {mode: self._cost(known, mode) for mode, known in in_time.items()}
        order = sorted(costs, key=lambda mode: costs[mode])  # stable: the simpler mode on a tie
        reasons = [self._in_words(in_time[mode], mode) for mode in order]
        if self.price_per_second and features.seconds is None:
            reasons.append("no cost model tells the seconds, so time has no price")
        mode, steps = first_in_time(features, order, reasons)
        return Decision.of(features, mode, steps, reasons)

    def predict(self, features: PolicyFeatures) -> dict[AnswerMode, float]:
        """Return the predicted bits per byte of each mode minus base's; lower is better."""
        return {mode: self._gain(features, mode) for mode in self._known(features)}

    def save(self, path: Path) -> None:
        """Write the policy as JSON."""
        record = {
            "format": FORMAT,
            "features": INPUTS,
            "price_per_second": self.price_per_second,
            "gains": {mode.value: asdict(ridge) for mode, ridge in self.gains.items()},
        }
        path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> LearnedPolicy:
        """Return the policy that `save` wrote.

        Raises:
            InvalidInputError: If the file is missing, or holds no such policy.
        """
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            if record["format"] != FORMAT or record["features"] != list(INPUTS):
                raise InvalidInputError("it is of another version")
            gains = {AnswerMode(mode): _ridge_of(r) for mode, r in record["gains"].items()}
            return cls(gains=gains, price_per_second=float(record["price_per_second"]))
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise InvalidInputError(
                f"{path} holds no policy that this version can read: {error}; fit it again"
            ) from error

    def _known(self, features: PolicyFeatures) -> list[AnswerMode]:
        """Return the modes whose gain can be predicted, base first."""
        return [m for m in features.possible if m is AnswerMode.BASE or m in self.gains]

    def _gain(self, features: PolicyFeatures, mode: AnswerMode) -> float:
        if mode is AnswerMode.BASE:
            return 0.0
        return self.gains[mode].predict(inputs_of(features))

    def _seconds(self, features: PolicyFeatures, mode: AnswerMode) -> float:
        if features.seconds is None:
            return 0.0
        return features.seconds.each(mode, n_questions=features.n_questions)

    def _cost(self, features: PolicyFeatures, mode: AnswerMode) -> float:
        seconds = self._seconds(features, mode)
        return self._gain(features, mode) + self.price_per_second * seconds

    def _in_words(self, features: PolicyFeatures, mode: AnswerMode) -> str:
        if mode is AnswerMode.BASE:
            words = f"{mode.value!r} is what gains are counted from"
        else:
            words = (
                f"{mode.value!r} is predicted to take {self._gain(features, mode):+.3f} bits per "
                f"byte (± {self.gains[mode].error:.3f})"
            )
        if self.price_per_second and features.seconds is not None:
            seconds = self._seconds(features, mode)
            words += (
                f"; its {seconds:.2g} s cost {self.price_per_second * seconds:.3f} at "
                f"{self.price_per_second:g} a second"
            )
        return words


def inputs_of(features: PolicyFeatures) -> FloatArray:
    """Return the numbers that gains are predicted from, in the order of `INPUTS`, float64."""
    return np.array(
        [
            features.explained_read,
            features.cut(1).explained_learned,
            features.explained_learned,
            log(1 + features.question_tokens),
            log(1 + features.read_tokens),
            log(1 + sum(features.learn_tokens)),
        ]
    )


def _in_time(features: PolicyFeatures, mode: AnswerMode) -> PolicyFeatures:
    """Return what is known where only the steps within the latency budget are taken, if any."""
    steps = features.steps_in_time(mode) if mode in LEARNING else None
    return features if steps is None else features.cut(max(1, steps))


def _ridge_of(record: Any) -> Ridge:
    """Return the regression of a record; what is no finite number raises."""
    numbers = {name: float(record[name]) for name in ("intercept", "low", "high", "error")}
    weights = tuple(map(float, record["weights"]))
    if not all(map(isfinite, [*weights, *numbers.values()])):
        raise InvalidInputError(f"a regression must hold finite numbers, got {record}")
    return Ridge(weights=weights, **numbers)
