"""Which way to answer is best for a collection: what was measured, and the policy it gives."""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sift_core.answering.cost_model import CostModel
from sift_core.answering.policy import CalibratedPolicy, PolicyFeatures, Split, Way
from sift_core.errors import InvalidInputError
from sift_core.files import seal, unseal, write_whole
from sift_core.processor import n_threads
from sift_core.types import AnswerMode, FloatArray

if TYPE_CHECKING:
    from sift_core.answering.model.language_model import LanguageModel

FORMAT = 1  # of the file
KNOWN = ("explained_read", "explained_learned", "question_tokens")  # what a split may go by
LEAST_SIDE = 8  # guess: examples on either side of a split
N_FOLDS = 10
N_SHUFFLES = 199  # of what is known of questions, to tell a split from chance
CERTAIN, N_ERRORS = 0.95, 1.645  # on one side; the second of standard errors
AS_GOOD = 0.002  # of base's bits: of ways that are so near to the best the quickest is taken


@dataclass(frozen=True, kw_only=True)
class MeasuredExample:
    """One example in every way.

    Args:
        bits_per_byte: Of the answer, way by way.
        seconds: Of learning and reading, way by way.
        features: What is known of the question.
    """

    bits_per_byte: tuple[float, ...]
    seconds: tuple[float, ...]
    features: PolicyFeatures

    @classmethod
    def of(cls, written: dict[str, Any]) -> MeasuredExample:
        """Return what `asdict` made of one, or JSON of that."""
        lists = {name: tuple(written[name]) for name in ("bits_per_byte", "seconds")}
        known = written["features"]
        tuples = {name: tuple(known[name]) for name in ("variances_learned", "learn_tokens")}
        return cls(features=PolicyFeatures(**known | tuples), **lists)


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """What ways to answer did for examples of a collection.

    `AnswerEngine(policy=found.policy, cost_model=found.cost_model, …)` goes by it in mode "auto".

    Args:
        ways: w of them, base first.
        examples: What was measured.
        cost_model: Seconds on the machine; None if they are of another one.
        model: Name of the language model.
        fingerprint: Of its weights.
        machine: Where it was measured.
    """

    ways: tuple[Way, ...]
    examples: tuple[MeasuredExample, ...]
    cost_model: CostModel | None
    model: str
    fingerprint: str
    machine: str

    @property
    def bits_per_byte(self) -> FloatArray:
        """Of each example in each way, shape (n, w)."""
        return np.array([one.bits_per_byte for one in self.examples])

    @property
    def seconds(self) -> FloatArray:
        """Of each example's learning and reading in each way, shape (n, w)."""
        return np.array([one.seconds for one in self.examples])

    @cached_property
    def policy(self) -> CalibratedPolicy:
        """What to do in mode "auto".

        Reading, unless another way is better for certain; or a split by what is known of a
        question, if it is better on examples that it was not fitted to, and better than all but
        5 % of the splits by what is known of others.
        """
        bits, split = self.bits_per_byte, None
        order = self._order(bits)
        known = np.array([[getattr(e.features, name) for name in KNOWN] for e in self.examples])
        if self._gain_of_splitting(known) > 0 and _is_no_chance(bits, known):
            _, column, threshold, below, above = _best_split(bits, known)
            ways = {"below": self.ways[below], "above": self.ways[above]}
            split = Split(known=KNOWN[column], threshold=threshold, **ways)
        return CalibratedPolicy(
            saved={self.ways[i]: float(1 - bits[:, i].mean() / bits[:, 0].mean()) for i in order},
            n_examples=len(bits),
            shortest=min(one.features.question_tokens for one in self.examples),
            split=split,
        )

    def _order(self, bits: FloatArray) -> list[int]:
        """Return the ways as they are preferred: those that are better than reading for certain.

        The quickest of those within .2 % of base's bits from the best one first. Then reading, and
        the others by their means.
        """
        usual = self.ways.index(Way(AnswerMode.CONTEXT))
        means, seconds = bits.mean(axis=0), self.seconds.mean(axis=0)
        gains = bits[:, [usual]] - bits
        errors = gains.std(axis=0, ddof=1) / np.sqrt(len(bits))
        order = [i for i in np.argsort(means, kind="stable").tolist() if i != usual]
        better = [i for i in order if gains[:, i].mean() > N_ERRORS * errors[i]]
        near = [i for i in better if means[i] <= means[better[0]] + AS_GOOD * means[0]]
        near.sort(key=seconds.__getitem__)
        found = [*near, *better[len(near) :], usual]
        return [*found, *(i for i in order if i not in found)]

    def _gain_of_splitting(self, known: FloatArray) -> float:
        """Return how many bits a split saves over the first way, on examples it has not seen."""
        bits, gain = self.bits_per_byte, 0.0
        folds = np.arange(len(bits)) % N_FOLDS
        for fold in range(N_FOLDS):
            seen, held = bits[folds != fold], bits[folds == fold]
            total, column, threshold, below, above = _best_split(seen, known[folds != fold])
            if not np.isfinite(total):
                return 0.0
            is_below = known[folds == fold, column] <= threshold
            chosen = np.where(is_below, held[:, below], held[:, above])
            gain += float((held[:, self._order(seen)[0]] - chosen).sum())
        return gain

    def save(self, path: str | Path) -> None:
        """Write all of it to a file, in place of what was there.

        Raises:
            InvalidInputError: If it cannot be written.
        """
        content = asdict(self) | {"format": FORMAT}
        for example in content["examples"]:
            example["features"] |= {"cost_model": None}
        try:
            write_whole(Path(path), seal(content, "calibration"))
        except OSError as error:
            raise InvalidInputError(
                f"the calibration could not be written to {str(path)!r}: {error}"
            ) from error

    @classmethod
    def load(cls, path: str | Path, language_model: LanguageModel) -> Calibration:
        """Return what `save` wrote; without a cost model if that is of another machine.

        Raises:
            InvalidInputError: If there is no such file, it is damaged, or of another model.
        """
        try:
            content = unseal(Path(path).read_bytes(), "calibration")
            if (found := content.pop("format")) != FORMAT:
                raise ValueError(f"its format is {found}, not {FORMAT}")
            loaded = cls(
                **content
                | {
                    "ways": tuple(_way(one) for one in content["ways"]),
                    "examples": tuple(map(MeasuredExample.of, content["examples"])),
                    "cost_model": content["cost_model"] and CostModel(**content["cost_model"]),
                }
            )
        except FileNotFoundError as error:
            raise InvalidInputError(
                f"no calibration at {str(path)!r}; make one: sift calibrate, or `calibrate(engine)`"
            ) from error
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise InvalidInputError(
                f"the calibration at {str(path)!r} is of no use: {error}; delete it and calibrate "
                f"again"
            ) from error
        if loaded.fingerprint != language_model.fingerprint:
            raise InvalidInputError(
                f"the calibration at {str(path)!r} was made with {loaded.model!r}, or other "
                f"weights of that name, not with {language_model.name!r}; use that model, or "
                f"calibrate again"
            )
        is_here = loaded.machine == machine_of(language_model)
        return loaded if is_here else replace(loaded, cost_model=None)


def _way(written: dict[str, Any]) -> Way:
    return Way(AnswerMode(written["mode"]), int(written["n_steps"]))


def machine_of(language_model: LanguageModel) -> str:
    """Return what seconds depend on beside model and settings."""
    model = language_model.model
    computed = f"{model.device}, {str(model.dtype).removeprefix('torch.')}"
    return f"{platform.node()}, {n_threads()} {platform.machine()} threads, {computed}"


def _best_split(bits: FloatArray, known: FloatArray) -> tuple[float, int, float, int, int]:
    """Return the sum of bits, column and threshold of what is known, and the ways on both sides.

    The split of the least sum, with eight examples at least on either side; infinite where there
    is none.
    """
    found = (np.inf, 0, 0.0, 0, 0)
    for column, values in enumerate(known.T):
        order = np.argsort(values, kind="stable")
        ordered, below = values[order], bits[order].cumsum(axis=0)
        above = below[-1] - below
        total = below.min(axis=1) + above.min(axis=1)
        total[: LEAST_SIDE - 1] = total[len(total) - LEAST_SIDE :] = np.inf
        total[:-1][ordered[:-1] == ordered[1:]] = np.inf
        i = int(total.argmin())
        if total[i] < found[0]:
            threshold = float(ordered[i] + ordered[i + 1]) / 2
            ways = int(below[i].argmin()), int(above[i].argmin())
            found = float(total[i]), column, threshold, *ways
    return found


def _is_no_chance(bits: FloatArray, known: FloatArray) -> bool:
    """Return whether splits are worse where what is known is of other examples, by chance.

    Of differences that are nothing but noise, the split with the least bits saves much, too.
    """
    generator = np.random.default_rng(0)
    total, *_ = _best_split(bits, known)
    shuffled = [_best_split(bits, generator.permutation(known))[0] for _ in range(N_SHUFFLES)]
    return bool(np.mean(total < np.array(shuffled)) >= CERTAIN)
