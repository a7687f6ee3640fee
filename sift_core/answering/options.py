"""Options of an engine beside those of a choice: how it puts chunks, and how it learns."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from sift_core.answering.adapter_cache import AdapterCache
from sift_core.answering.model.adapters import Adapter
from sift_core.answering.settings import (
    EFFORTS,
    FineTuningSettings,
    check_effort,
    effort_for,
)
from sift_core.checks import as_count, check_flag, check_instance, check_text, short_repr
from sift_core.errors import InvalidInputError
from sift_core.options import ChoiceOptions
from sift_core.protocols import Selector
from sift_core.selection.sift import SIFTSelector

LARGEST_COUNT = 1_000_000  # of documents, steps or tokens for one question
PLACE = re.compile(r"\{(?:context|question)\}")


@dataclass(frozen=True, kw_only=True)
class PromptOptions:
    """How chunks and question are put.

    Args:
        cite: Number the chunks in the prompt, and ask the model for marks such as [1].
            `Answer.citations` has the marks that it wrote. Small models often write none or wrong
            ones. Default: False.
        system: A system message before all else. A history that begins with a system message
            keeps its own. Default: none.
        template: A text with the places "{context}" and "{question}"; other braces stay. Default:
            the chunks, a blank line, the question. A question without chunks stands alone.

    Raises:
        InvalidInputError: If a text is empty, or the template lacks a place.
    """

    cite: bool = False
    system: str | None = None
    template: str | None = None

    def __post_init__(self) -> None:
        check_flag("cite", self.cite)
        for name in ("system", "template"):
            if (text := getattr(self, name)) is not None:
                check_text(name, text)
                if not text.strip():
                    raise InvalidInputError(f"`{name}` is empty; leave it out for none")
        if self.template is not None:
            missing = {"{context}", "{question}"} - set(PLACE.findall(self.template))
            if missing:
                raise InvalidInputError(
                    f"`template` must have the places {{context}} and {{question}}, got none for "
                    f"{' and '.join(sorted(missing))}"
                )


def _lesson_selector() -> Selector:
    return SIFTSelector.for_fine_tuning(noise_variance=0.1)


@dataclass(frozen=True, kw_only=True, eq=False)
class LearningOptions:
    """How much a model learns for a question, from which chunks, and how.

    Args:
        effort: How much to learn at most: "quick", "balanced" or "thorough", which are steps and a
            rate that suits them (`EFFORTS`). Default: "balanced".
        n_steps: Training steps in place of `effort`, >= 1, taken as `settings` say; the paper's
            are 50. Default: the steps of `effort`.
        selector: Chooses the chunks to learn from. Default: the paper's selector with repeats and
            λ = 0.1 (decision 0014).
        settings: How an adapter learns. Default: the paper's settings.
        cache: Keeps adapters for the next question with the same chunks. Default: one in memory;
            None keeps nothing.
        adapter: What `learn_collection` has learned beforehand, for mode "merged". Default: none,
            and no such mode.

    Raises:
        InvalidInputError: If there is no such effort, `n_steps` is out of its range, or an object
            is of another class.
    """

    effort: str = "balanced"
    n_steps: int | None = None
    selector: Selector = field(default_factory=_lesson_selector)
    settings: FineTuningSettings = field(default_factory=FineTuningSettings)
    cache: AdapterCache | None = field(default_factory=AdapterCache)
    adapter: Adapter | None = None

    def __post_init__(self) -> None:
        check_effort(self.effort)
        check_instance("settings", self.settings, FineTuningSettings)
        if self.cache is not None:
            check_instance("cache", self.cache, AdapterCache)
        if self.adapter is not None:
            check_instance("adapter", self.adapter, Adapter)
        if self.n_steps is not None:
            as_count("n_steps", self.n_steps, minimum=1, maximum=LARGEST_COUNT)
        if not isinstance(self.selector, Selector):
            raise InvalidInputError(
                f"`selector` must have a method `select`, got {short_repr(self.selector)}"
            )

    def with_effort(self, effort: str | None) -> LearningOptions:
        """Return these options with another effort, and its steps; None changes nothing."""
        return self if effort is None else replace(self, effort=effort, n_steps=None)

    @property
    def max_steps(self) -> int:
        """Training steps at most."""
        return EFFORTS[self.effort].n_steps if self.n_steps is None else self.n_steps

    @property
    def choice_options(self) -> ChoiceOptions:
        """Options of the choice of training data.

        It goes by embeddings alone, as the paper's method does and as was measured. A policy reads
        its features from these choices, too.
        """
        return ChoiceOptions(n_select=self.max_steps, words=0, selector=self.selector)

    def effort_of(self, n_steps: int) -> str | None:
        """Return the least named effort of `n_steps` steps; None where `n_steps` replaces it."""
        return effort_for(n_steps) if self.n_steps is None else None

    def settings_of(self, effort: str | None) -> FineTuningSettings:
        """Return how an adapter learns with a named effort; as `settings` say for None."""
        return self.settings if effort is None else EFFORTS[effort].of(self.settings)
