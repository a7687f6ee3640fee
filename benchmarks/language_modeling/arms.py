"""What is measured on every prompt: a mode, what is chosen for it and how, and how it learns.

The parts of the experiment say which arms each table compares; arms that several parts need
are measured once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from benchmarks.language_modeling.selectors import (
    HullReconstructionSelector,
    RepeatedNeighborSelector,
    UncertaintySamplingSelector,
)
from sift_core import (
    ContextSelector,
    LinearKernel,
    NearestNeighborSelector,
    SIFTSelector,
    posterior_variances,
)
from sift_core.protocols import Selector
from sift_core.types import FloatArray, IntArray

Mode = Literal["base", "context", "fine_tune", "both"]
SelectorName = Literal["SIFT", "SIFT context", "NN", "NN-F", "US", "HullFT", "other prompt"]
WITH_NOISE_VARIANCE = ("SIFT", "US", "other prompt")
REFERENCE_NOISE_VARIANCE = 0.1  # of σ² in the rows of selectors that have no λ
CONTEXT_TOKENS = (1024, 2048, 4096)


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One column of a table. Its fields are the keys under "arm" in a row of results.

    Args:
        mode: "base" scores the model alone; "context" after the chunks that fit into the
            window; "fine_tune" after learning from the chunks; "both" after both.
        selector: What chooses, paper section 5: "SIFT" (may repeat a chunk), "NN" (nearest
            neighbours), "NN-F" (the nearest, over and over), "US" (uncertainty sampling),
            "HullFT" (Khamis and Maalouf; weights of the reconstruction are repeats). "SIFT
            context" is this library's default for context. "other prompt": SIFT's choice for
            another prompt, a control that shows what any text would teach. None in mode
            "base".
        noise_variance: λ of "SIFT", "US" and "other prompt"; None for others.
        n_candidates: K, the nearest neighbours to choose from.
        n_steps: N, how many to choose.
        learning_rate: Of Adam, for a LoRA on all layers; None where nothing is learned.
        context_tokens: How many tokens of chunks are read at most; None for as many as the
            window takes, and where nothing is read.
    """

    mode: Mode
    selector: SelectorName | None = None
    noise_variance: float | None = None
    n_candidates: int = 200
    n_steps: int = 50
    learning_rate: float | None = None
    context_tokens: int | None = None

    def as_record(self) -> dict[str, Any]:
        """Return what stands in a row of results."""
        return asdict(self)

    @property
    def without_context(self) -> Arm:
        """The arm that learns the same and reads nothing."""
        if self.mode != "both":
            return self
        return replace(self, mode="fine_tune", context_tokens=None)

    @property
    def what_chooses(self) -> Arm:
        """An arm that chooses the same: all that do have one in common."""
        if self.mode == "base":
            return self
        return replace(self, mode="context", learning_rate=None, context_tokens=None)

    def choose(self, query: FloatArray, candidates: FloatArray) -> IntArray:
        """Return positions of candidates that are sorted by inner product, repeats included."""
        return self._selector().select(query, candidates, self.n_steps).positions

    def variances(self, query: FloatArray, chosen: FloatArray) -> FloatArray:
        """Return σ² at the query before the first and after every choice, shape (n + 1,)."""
        return posterior_variances(query, chosen, **self._gaussian_process)

    @property
    def _gaussian_process(self) -> dict[str, Any]:
        """What SIFT and US choose by, and what σ² is computed with."""
        return {
            "kernel": LinearKernel(),
            "noise_variance": self.noise_variance or REFERENCE_NOISE_VARIANCE,
        }

    def _selector(self) -> Selector:
        sift = SIFTSelector(**self._gaussian_process, allow_repeats=True)
        return {
            "SIFT": sift,
            "other prompt": sift,
            "SIFT context": ContextSelector(),
            "NN": NearestNeighborSelector(),
            "NN-F": RepeatedNeighborSelector(),
            "US": UncertaintySamplingSelector(**self._gaussian_process),
            "HullFT": HullReconstructionSelector(),
        }[self.selector]


BASE = Arm(mode="base")


@dataclass(frozen=True, kw_only=True)
class MainSettings:
    """What the arms of all parts have in common. Ranges are those of `Arm`.

    Args:
        learning_rate: Of Adam.
        noise_variance: λ of SIFT, US and the control.
        n_candidates: K.
        n_steps: N.
    """

    learning_rate: float = 5e-4  # the best of four on prompts that do not judge: LOG.md
    noise_variance: float = 0.1
    n_candidates: int = 200
    n_steps: int = 50

    def learning(self, selector: SelectorName, **changes: Any) -> Arm:
        """Return a fine-tuning arm with these settings but for the changes."""
        learned = {"mode": "fine_tune", "learning_rate": self.learning_rate}
        return replace(self.reading(selector), **{**learned, **changes})

    def reading(self, selector: SelectorName, context_tokens: int | None = None) -> Arm:
        """Return a context arm with these settings."""
        return Arm(
            mode="context",
            selector=selector,
            noise_variance=self.noise_variance if selector in WITH_NOISE_VARIANCE else None,
            n_candidates=self.n_candidates,
            n_steps=self.n_steps,
            context_tokens=context_tokens,
        )


def arms_of(parts: Iterable[str], main: MainSettings | None = None) -> list[Arm]:
    """Return the arms that parts of `PARTS` compare, each once."""
    by_part = _by_part(main or MainSettings())
    return list(dict.fromkeys(arm for part in parts for arm in by_part[part]))


def _by_part(main: MainSettings) -> dict[str, list[Arm]]:
    learning, reading = main.learning, main.reading
    sift, nearest = learning("SIFT"), learning("NN")
    return {
        "main": [
            *(sift, nearest, learning("SIFT", noise_variance=0.01)),
            *map(learning, ("NN-F", "US", "HullFT", "other prompt")),
        ],
        "pair": [sift, nearest],
        "context": [
            *(sift, nearest),
            *(
                arm
                for room in CONTEXT_TOKENS
                for arm in (
                    *(reading(name, room) for name in ("SIFT", "NN", "SIFT context")),
                    *(replace(one, mode="both", context_tokens=room) for one in (sift, nearest)),
                )
            ),
        ],
    }


PARTS = tuple(_by_part(MainSettings()))
