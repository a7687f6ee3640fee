"""How a model learns from chunks, and how much: settings and named efforts."""

from __future__ import annotations

import copy
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

from sift_core.checks import as_count, as_number, short_repr
from sift_core.errors import InvalidInputError

DEFAULT_RANK, DEFAULT_ALPHA = 64, 16.0  # the paper's, appendix "Low-Rank Adaptation"
LORA_LEARNING_RATE = 5e-4  # the paper's, appendix "Low-Rank Adaptation"

Schedule: TypeAlias = Literal["constant", "linear"]


@dataclass(frozen=True, kw_only=True)
class FineTuningSettings:
    """How one query's adapter learns. The defaults are the paper's.

    Args:
        lora: A `peft.LoraConfig`: rank, scaling (also rank-stabilised) and which linear layers
            (`target_modules`, `exclude_modules`, `layers_to_transform`), as PEFT reads them. What
            else PEFT can do, dropout for one, is refused. Fused experts are no linear layers and
            stay as they are. Default: rank 64 and alpha 16 on every linear layer but the head.
        learning_rate: Of Adam, > 0. Default: the paper's, 5e-4.
        schedule: Of the learning rate. "constant" is the paper's and the default. "linear" lets it
            fall with every step, to 1 / N of itself at the last of N planned steps.
        seed: Of the adapter's random half. The same seed gives the same answer. Default: 0.
        max_seconds: Time after which no further step begins, > 0. One step is always taken.
            Default: any time.
        checkpointing: Compute activations again in the backward pass, layer by layer, which takes
            a third more time. Default: False, which does so only after memory has run out.

    Raises:
        InvalidInputError: If a value is out of its range.

    Example:
        >>> settings = FineTuningSettings(learning_rate=1e-3, max_seconds=30)
        >>> fine_tune(language_model, ["The ferry sails at nine."], settings).report.n_steps
        1
    """

    lora: Any = None
    learning_rate: float | None = None
    schedule: Schedule = "constant"
    seed: int = 0
    max_seconds: float | None = None
    checkpointing: bool = False

    def __post_init__(self) -> None:
        if as_count("seed", self.seed, minimum=0) >= 2**63:
            raise InvalidInputError(f"`seed` must be < 2**63, got {short_repr(self.seed)}")
        for name in ("learning_rate", "max_seconds"):
            if (value := getattr(self, name)) is not None:
                as_number(name, value, above=0)
        if not (isinstance(self.schedule, str) and self.schedule in get_args(Schedule)):
            raise InvalidInputError(
                f'`schedule` must be "constant" or "linear", got {short_repr(self.schedule)}'
            )
        if self.lora is not None:
            self._check_lora()

    def _check_lora(self) -> None:
        from sift_core.answering.model.adapters import check_plain  # imports PEFT

        check_plain(self.lora, has_learned=False)
        object.__setattr__(self, "lora", copy.deepcopy(self.lora))  # nobody changes ours

    @property
    def rank(self) -> int:
        """Return the rank of every update."""
        return DEFAULT_RANK if self.lora is None else int(self.lora.r)

    @property
    def alpha(self) -> float:
        """Return the output scaling; the update is multiplied by alpha / rank."""
        if self.lora is None:
            return DEFAULT_ALPHA
        from sift_core.answering.model.adapters import alpha_of

        return alpha_of(self.lora)

    def within(self, max_seconds: float | None) -> FineTuningSettings:
        """Return these settings with at most this many seconds, if any are given."""
        if max_seconds is None:
            return self
        return replace(self, max_seconds=min(max_seconds, self.max_seconds or max_seconds))

    def as_record(self) -> dict[str, Any]:
        """Return all settings in JSON's types, equal for equal settings."""
        record = asdict(replace(self, lora=None))
        record |= {"rank": self.rank, "alpha": self.alpha, "learning_rate": self.step_size}
        if self.lora is not None:
            for name in ("target_modules", "exclude_modules", "layers_to_transform"):
                named = getattr(self.lora, name, None)
                record[name] = sorted(named) if isinstance(named, set | list) else named
            record["layers_pattern"] = self.lora.layers_pattern
        return record

    @property
    def step_size(self) -> float:
        """Return the learning rate, the paper's where none was given."""
        return LORA_LEARNING_RATE if self.learning_rate is None else self.learning_rate


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
