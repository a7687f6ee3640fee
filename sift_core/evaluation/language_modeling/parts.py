"""The parts of the language modelling experiment: which arms each table compares.

Arms that several parts need are measured once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sift_core.errors import InvalidInputError
from sift_core.evaluation.language_modeling.arms import (
    WITH_NOISE_VARIANCE,
    Arm,
    SelectorName,
    learning,
    reading,
)

NOISE_VARIANCES = (1e-4, 0.01, 0.1, 1.0, 10.0)
CANDIDATES = (50, 100, 200, 500, 1000)
BATCHES = (1, 2, 5, 10)
LEARNING_RATES = {
    "all": (5e-4, 2e-3, 5e-3, 1e-2),
    "head": (5e-4, 2e-3, 1e-2),
    "full": (5e-5, 2e-4, 1e-3),
}


@dataclass(frozen=True, kw_only=True)
class MainSettings:
    """What every part varies one of. Ranges are those of `Arm`.

    Args:
        scope: What learns.
        learning_rate: Of Adam, in that scope.
        noise_variance: λ of SIFT, US and the control.
        n_candidates: K.
        n_steps: N.
        scope_rates: Learning rates of the other scopes, for the part "scope".
    """

    scope: str = "all"
    learning_rate: float = 5e-4
    noise_variance: float = 0.1
    n_candidates: int = 200
    n_steps: int = 50
    scope_rates: Mapping[str, float] | None = None

    def learning(self, selector: SelectorName, **changes: Any) -> Arm:
        """Return a fine-tuning arm with these settings but for the changes."""
        settings = {
            "noise_variance": self._noise_variance_of(selector),
            "scope": self.scope,
            "learning_rate": self.learning_rate,
            "n_candidates": self.n_candidates,
            "n_steps": self.n_steps,
        }
        return learning(selector, **{**settings, **changes})

    def reading(self, selector: SelectorName, **changes: Any) -> Arm:
        """Return a context arm with these settings but for the changes."""
        settings = {
            "noise_variance": self._noise_variance_of(selector),
            "n_candidates": self.n_candidates,
            "n_steps": self.n_steps,
        }
        return reading(selector, **{**settings, **changes})

    def _noise_variance_of(self, selector: SelectorName) -> float | None:
        return self.noise_variance if selector in WITH_NOISE_VARIANCE else None


def _main(main: MainSettings) -> list[Arm]:
    others: tuple[SelectorName, ...] = ("NN", "NN-F", "US", "HullFT", "other prompt")
    return [main.learning("SIFT"), *map(main.learning, others)]


def _context(main: MainSettings) -> list[Arm]:
    selectors: tuple[SelectorName, ...] = ("SIFT", "SIFT context", "NN")
    learned = main.learning("SIFT"), main.learning("SIFT", mode="both")
    return [*learned, *map(main.reading, selectors)]


def _noise_variance(main: MainSettings) -> list[Arm]:
    sift = [main.learning("SIFT", noise_variance=one) for one in NOISE_VARIANCES]
    return [*sift, main.learning("SIFT"), main.learning("NN"), main.learning("NN-F")]


def _learning_rate(main: MainSettings) -> list[Arm]:
    return [
        main.learning("NN", scope=scope, learning_rate=rate)
        for scope, rates in LEARNING_RATES.items()
        for rate in rates
    ]


def _order(main: MainSettings) -> list[Arm]:
    both: tuple[SelectorName, ...] = ("SIFT", "NN")
    return [main.learning(one, order=order) for one in both for order in ("chosen", "reversed")]


def _batch(main: MainSettings) -> list[Arm]:
    return [main.learning("SIFT", chunks_per_step=size) for size in BATCHES]


def _scope(main: MainSettings) -> list[Arm]:
    rates = {main.scope: main.learning_rate, **(main.scope_rates or {})}
    return [main.learning("SIFT", scope=scope, learning_rate=rate) for scope, rate in rates.items()]


def _normalized(main: MainSettings) -> list[Arm]:
    arms = [main.learning("SIFT"), main.learning("NN")]
    return [*arms, *(replace(arm, is_normalized=False) for arm in arms)]


def _candidates(main: MainSettings) -> list[Arm]:
    return [main.learning("SIFT", n_candidates=n) for n in CANDIDATES]


PARTS: Mapping[str, Callable[[MainSettings], list[Arm]]] = {
    "main": _main,
    "context": _context,
    "noise_variance": _noise_variance,
    "learning_rate": _learning_rate,
    "order": _order,
    "batch": _batch,
    "scope": _scope,
    "normalized": _normalized,
    "candidates": _candidates,
}


def arms_of(parts: Iterable[str], main: MainSettings | None = None) -> list[Arm]:
    """Return the arms that parts compare, each once.

    Args:
        parts: Of `PARTS`: "main" compares selectors, "context" modes, the others what their
            names say.
        main: What is common to them.

    Raises:
        InvalidInputError: If there is no such part.
    """
    found: dict[Arm, None] = {}
    for part in parts:
        if part not in PARTS:
            raise InvalidInputError(f"no part {part!r}; there are {', '.join(PARTS)}")
        found.update(dict.fromkeys(PARTS[part](main or MainSettings())))
    return list(found)
