"""The report of a fine-tuning: its steps, its losses and what went wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

FineTuningStop: TypeAlias = Literal["done", "time", "diverged"]
"""Why no further step was taken: all were, time was over, or the loss was no longer finite."""


@dataclass(frozen=True, kw_only=True)
class FineTuningReport:
    """How a model learned from chunks, and what went wrong on the way.

    Args:
        losses: Before each step in nats per token, in order.
        n_steps: Steps taken.
        learned: Positions of the chunks that were learned from, in order, repeats included.
        n_refused: Steps not taken because the loss or the gradient was not finite.
        n_skipped: Chunks without a token, from which there is nothing to learn.
        stop_reason: "done", "time" or "diverged": then the last step was undone.
        checkpointing: Whether activations were computed twice to save memory.
        source: "trained", or the cache that had the adapter already: "memory" or "disk".
    """

    losses: tuple[float, ...]
    n_steps: int
    learned: tuple[int, ...] = ()
    n_refused: int = 0
    n_skipped: int = 0
    stop_reason: FineTuningStop = "done"
    checkpointing: bool = False
    source: Literal["trained", "memory", "disk"] = "trained"

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return what a caller should know, one sentence each; empty if all went well."""
        said = []
        if self.stop_reason == "diverged":
            fallen_to = "the last good adapter" if self.learned else "the base model"
            said.append(
                f"learning diverged after {self.n_steps} steps and fell back to {fallen_to}"
            )
        if self.stop_reason == "time":
            said.append(f"time was over after {self.n_steps} training steps")
        if self.n_refused:
            said.append(f"{self.n_refused} steps were refused: loss or gradient was not finite")
        if self.n_skipped:
            said.append(f"{self.n_skipped} chunks had no token to learn from")
        return tuple(said)
