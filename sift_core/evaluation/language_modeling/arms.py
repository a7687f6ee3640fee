"""What is measured on every prompt: a mode, what is chosen for it and how, and how it learns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from numbers import Real
from typing import Any, Literal, get_args

import numpy as np

from sift_core.checks import as_count
from sift_core.errors import InvalidInputError
from sift_core.evaluation.analysis.result_row import arm_label
from sift_core.protocols import Selector
from sift_core.selection import (
    ContextSelector,
    HullReconstructionSelector,
    LinearKernel,
    NearestNeighborSelector,
    RepeatedNeighborSelector,
    SIFTSelector,
    UncertaintySamplingSelector,
    posterior_variances,
)
from sift_core.types import FloatArray, Selection, StopReason

Mode = Literal["base", "context", "fine_tune", "both"]
SelectorName = Literal["SIFT", "SIFT context", "NN", "NN-F", "US", "HullFT", "other prompt"]
Order = Literal["chosen", "reversed"]
WITH_NOISE_VARIANCE = ("SIFT", "US", "other prompt")
REFERENCE_NOISE_VARIANCE = 0.1  # of σ² in the rows of selectors that have no λ


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One column of a table. The defaults are those of the main table's fine-tuning.

    Args:
        mode: "base" scores the model alone; "context" after the chunks that fit into the
            window; "fine_tune" after learning from the chunks; "both" after both.
        selector: What chooses, paper section 5: "SIFT" (may repeat a chunk), "NN" (nearest
            neighbours), "NN-F" (the nearest, over and over), "US" (uncertainty sampling),
            "HullFT" (Khamis and Maalouf; weights of the reconstruction are repeats). "SIFT
            context" is this library's default for context. "other prompt": SIFT's choice for
            another prompt, a control that shows what any text would teach. None in mode
            "base".
        noise_variance: λ > 0 of "SIFT", "US" and "other prompt"; None for others.
        n_candidates: K >= 1, the nearest neighbours to choose from.
        n_steps: N >= 1, how many to choose.
        is_normalized: Whether embeddings are scaled to unit length first. If not, SIFT, US and
            NN go by inner products; the other selectors know cosines alone.
        scope: What learns, see `FineTuningSettings`. This and all below: None where nothing is
            learned.
        learning_rate: Of Adam, > 0.
        chunks_per_step: Chunks whose mean loss one step follows, >= 1.
        order: Whether the first chosen is learned first or last.

    Raises:
        InvalidInputError: If a value is out of its range, or values do not fit together.
    """

    mode: Mode
    selector: SelectorName | None = None
    noise_variance: float | None = None
    n_candidates: int = 200
    n_steps: int = 50
    is_normalized: bool = True
    scope: str | None = None
    learning_rate: float | None = None
    chunks_per_step: int | None = None
    order: Order | None = None

    def __post_init__(self) -> None:
        for name, value, choices in (
            ("mode", self.mode, get_args(Mode)),
            ("selector", self.selector, (*get_args(SelectorName), None)),
            ("order", self.order, (*get_args(Order), None)),
        ):
            if value not in choices:
                raise InvalidInputError(f"`{name}` must be one of {choices}, got {value!r}")
        self._make_numbers_plain()
        if (self.mode == "base") != (self.selector is None):
            raise InvalidInputError(
                f"mode {self.mode!r} does not go with selector {self.selector!r}: the base model "
                f"reads and learns nothing, the other modes do"
            )
        if (self.noise_variance is not None) != self._has_noise_variance:
            raise InvalidInputError(
                f"selector {self.selector!r} does not go with `noise_variance` "
                f"{self.noise_variance}: SIFT, US and the control have a λ, the others do not"
            )
        if not self.is_normalized and self.selector not in ("SIFT", "US", "NN", "other prompt"):
            raise InvalidInputError(
                f"selector {self.selector!r} knows cosines alone: leave `is_normalized` True"
            )
        learns = self.mode in ("fine_tune", "both")
        of_learning = (self.scope, self.learning_rate, self.chunks_per_step, self.order)
        if any((value is not None) != learns for value in of_learning):
            raise InvalidInputError(
                f"mode {self.mode!r} does not go with {of_learning}: scope, learning rate, chunks "
                f"a step and order are given where something is learned, and there alone"
            )

    def _make_numbers_plain(self) -> None:
        """Check the numbers, and keep them as int and float: 1 and 1.0 would be two arms' keys."""
        for name in ("n_candidates", "n_steps", "chunks_per_step"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, as_count(name, value, minimum=1))
        for name in ("noise_variance", "learning_rate"):
            value = getattr(self, name)
            if value is None:
                continue
            is_number = isinstance(value, Real) and not isinstance(value, bool)
            if not is_number or not 0 < float(value) < math.inf:
                raise InvalidInputError(f"`{name}` must be a finite number > 0, got {value!r}")
            object.__setattr__(self, name, float(value))
        if not isinstance(self.is_normalized, bool):
            raise InvalidInputError(
                f"`is_normalized` must be True or False, got {self.is_normalized!r}"
            )

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Arm:
        """Return the arm that stands in a row of results.

        Raises:
            InvalidInputError: If it is none of this version's.
        """
        names = {field.name for field in fields(cls)}
        if names != set(record):
            raise InvalidInputError(
                f"an arm has {sorted(names)}, got {sorted(record)}: the results are another "
                f"version's; measure them anew"
            )
        return cls(**record)

    def as_record(self) -> dict[str, Any]:
        """Return what stands in a row of results."""
        return asdict(self)

    @property
    def label(self) -> str:
        """The arm in a table's head."""
        return arm_label(self)

    @property
    def without_context(self) -> Arm:
        """The arm that learns the same and reads nothing."""
        return replace(self, mode="fine_tune") if self.mode == "both" else self

    @property
    def what_chooses(self) -> Arm:
        """An arm that chooses the same: all that do have one in common."""
        if self.mode == "base":
            return self
        return replace(
            self, mode="context", scope=None, learning_rate=None, chunks_per_step=None, order=None
        )

    @property
    def _has_noise_variance(self) -> bool:
        return self.selector in WITH_NOISE_VARIANCE

    @property
    def kernel(self) -> LinearKernel:
        """What SIFT and US choose by, and what σ² is computed with."""
        return LinearKernel(normalize=self.is_normalized)

    def make_selector(self) -> Selector:
        """Return what chooses.

        Raises:
            InvalidInputError: If the arm is the base model's.
        """
        noise = self.noise_variance or REFERENCE_NOISE_VARIANCE
        sift = SIFTSelector(kernel=self.kernel, noise_variance=noise, allow_repeats=True)
        makers: dict[str | None, Selector] = {
            "SIFT": sift,
            "other prompt": sift,
            "SIFT context": ContextSelector(),
            "NN": NearestNeighborSelector() if self.is_normalized else _NearestAsGiven(),
            "NN-F": RepeatedNeighborSelector(),
            "US": UncertaintySamplingSelector(kernel=self.kernel, noise_variance=noise),
            "HullFT": HullReconstructionSelector(),
        }
        if self.selector not in makers:
            raise InvalidInputError("the base model chooses nothing")
        return makers[self.selector]


class _NearestAsGiven:
    """The first of candidates that are sorted already: nearest neighbours by inner product."""

    def select(
        self,
        query: FloatArray,
        candidates: FloatArray,
        n_select: int,
        *,
        relevance: FloatArray | None = None,
    ) -> Selection:
        """Return the first rows in their order."""
        positions = np.arange(min(n_select, len(candidates)))
        complete = len(positions) == n_select
        return Selection(
            positions=positions,
            variances=posterior_variances(
                query,
                candidates[positions],
                kernel=LinearKernel(normalize=False),
                noise_variance=REFERENCE_NOISE_VARIANCE,
            ),
            stop_reason=StopReason.N_SELECT if complete else StopReason.POOL_EXHAUSTED,
        )


def learning(selector: SelectorName, noise_variance: float | None = None, **settings: Any) -> Arm:
    """Return a fine-tuning arm; one LoRA on all layers, one chunk a step, if not said otherwise."""
    defaults = {"scope": "all", "learning_rate": 5e-4, "chunks_per_step": 1, "order": "chosen"}
    return Arm(
        mode=settings.pop("mode", "fine_tune"),
        selector=selector,
        noise_variance=noise_variance,
        **{**defaults, **settings},
    )


def reading(selector: SelectorName, noise_variance: float | None = None, **settings: Any) -> Arm:
    """Return a context arm."""
    return Arm(mode="context", selector=selector, noise_variance=noise_variance, **settings)


BASE = Arm(mode="base")
