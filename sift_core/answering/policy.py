"""The choice between base, context and fine-tuning for one query."""

from __future__ import annotations

from dataclasses import dataclass

from sift_core.errors import InvalidInputError
from sift_core.types import AnswerMode


@dataclass(frozen=True, kw_only=True)
class Decision:
    """A mode and why, one sentence a reason."""

    mode: AnswerMode
    reasons: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class VariancePolicy:
    """Answers from the documents only if they say something, and in the context if they fit.

    A first rule, to be replaced by a measured one:
    1. The chosen documents explain too little of the query's variance: base.
    2. They fit into the window beside question and answer: context, the cheaper way.
    3. Otherwise: fine-tune, which needs no window.

    Args:
        min_explained: Share of the variance at the query that the chosen documents must
            explain, in [0, 1]. 0.25 lies between an off-topic question to the Python
            documentation (17 %) and on-topic ones (38 to 62 %, ten chunks, MiniLM).
    """

    min_explained: float = 0.25

    def __post_init__(self) -> None:
        if not 0 <= self.min_explained <= 1:
            raise InvalidInputError(f"`min_explained` must be in [0, 1], got {self.min_explained}")

    def decide(
        self, *, variance_before: float, variance_after: float, context_tokens: int, room: int
    ) -> Decision:
        """Return the mode for one query.

        Args:
            variance_before: σ² at the query before any document.
            variance_after: σ² at the query given the chosen documents.
            context_tokens: Length of the chosen documents.
            room: Tokens that the window has for them.
        """
        explained = 1 - variance_after / variance_before if variance_before > 0 else 0.0
        share = f"the chosen documents explain {explained:.0%} of the variance at the query"
        if explained < self.min_explained:
            return Decision(
                mode=AnswerMode.BASE,
                reasons=(f"{share}, less than {self.min_explained:.0%}: they are off the topic",),
            )
        if context_tokens <= room:
            fits = f"their {context_tokens} tokens fit into the {room} that the window has left"
            return Decision(mode=AnswerMode.CONTEXT, reasons=(share, fits))
        too_long = f"their {context_tokens} tokens exceed the {room} that the window has left"
        return Decision(mode=AnswerMode.FINE_TUNE, reasons=(share, too_long))
