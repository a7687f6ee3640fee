"""What is answered where the documents say nothing on a question."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sift_core.answering.model.generation import Generation
from sift_core.checks import short_repr
from sift_core.errors import InvalidInputError

REFUSAL = "The documents say nothing about that."
ON_OFF_TOPIC = ("refuse", "base")


class Refusing:
    """Writes that the documents say nothing, in place of a model; no model runs."""

    def generate(
        self, prompt: object, *, on_text: Callable[[str], object] | None = None, **options: Any
    ) -> Generation:
        """Return the refusal, whatever was asked."""
        if on_text is not None:
            on_text(REFUSAL)
        return Generation(text=REFUSAL, n_prompt_tokens=0, n_new_tokens=0, finish_reason="stop")


def check_on_off_topic(value: object) -> None:
    """Refuse what is no way to answer such a question.

    Raises:
        InvalidInputError: If so.
    """
    if value not in ON_OFF_TOPIC:
        raise InvalidInputError(
            f"`on_off_topic` must be 'refuse' or 'base', got {short_repr(value)}"
        )
