"""How much is learned: named numbers of steps, each with the learning rate that suits it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sift_core.answering.learning.settings import FineTuningSettings, Schedule
from sift_core.checks import short_repr
from sift_core.errors import InvalidInputError


@dataclass(frozen=True, kw_only=True)
class Effort:
    """So many steps, and how they are taken.

    Args:
        n_steps: Training steps at most.
        rate_factor: What the default learning rate of what learns is multiplied by.
        schedule: Of the learning rate.
    """

    n_steps: int
    rate_factor: float = 1.0
    schedule: Schedule = "constant"

    def of(self, settings: FineTuningSettings) -> FineTuningSettings:
        """Return how to learn with this effort; a rate that somebody has set stays as it is."""
        if settings.learning_rate is not None:
            return settings
        rate = self.rate_factor * settings.step_size
        return replace(settings, learning_rate=rate, schedule=self.schedule)


# Rates and counts were tuned on prompts that no table is of (tag evidence-2026-11).
EFFORTS = {
    "quick": Effort(n_steps=5, rate_factor=6.0),
    "balanced": Effort(n_steps=12, rate_factor=6.0, schedule="linear"),
    "thorough": Effort(n_steps=50),
}


def check_effort(effort: str) -> None:
    """Refuse what is no effort.

    Raises:
        InvalidInputError: If it is not one's name.
    """
    if not (isinstance(effort, str) and effort in EFFORTS):
        known = ", ".join(map(repr, EFFORTS))
        raise InvalidInputError(f"`effort` must be one of {known}, got {short_repr(effort)}")


def effort_for(n_steps: int) -> str:
    """Return the least effort of so many steps; the greatest if none has."""
    return next((name for name, one in EFFORTS.items() if one.n_steps >= n_steps), "thorough")
