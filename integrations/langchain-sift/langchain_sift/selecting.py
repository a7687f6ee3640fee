"""What the retriever and the compressor let one set about the choice, and the choice."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from langchain_core.documents import Document
from pydantic import BaseModel, ConfigDict, model_validator

from langchain_sift.documents import chosen_documents
from sift_core import CandidatePool, InvalidInputError, Query, Selector, selector_from_settings

_selector_from_settings = lru_cache(maxsize=64)(selector_from_settings)  # selectors have no state


class SelectorSettings(BaseModel):
    """A selector, or the plain settings of the usual ones.

    Args:
        selector: Any `sift_core.Selector`.
        kernel: "auto", "rbf" or "linear"; this and the following stand in for a selector.
        length_scale: For "rbf" alone; None for the core's default.
        noise_variance: λ > 0; None for the kernel's default.
        alpha: Adaptive stop; None never stops.
    """

    selector: Selector | None = None
    kernel: Literal["auto", "rbf", "linear"] = "auto"
    length_scale: float | None = None
    noise_variance: float | None = None
    alpha: float | None = None

    model_config = ConfigDict(arbitrary_types_allowed=True)

    @model_validator(mode="after")
    def _check_selector(self) -> SelectorSettings:
        settings = (self.length_scale, self.noise_variance, self.alpha)
        if self.selector is not None and (self.kernel != "auto" or settings != (None,) * 3):
            raise InvalidInputError(
                "`selector` says all about the choice: leave `kernel`, `length_scale`, "
                "`noise_variance` and `alpha` out, or set them on the selector itself"
            )
        self._selector()
        return self

    def _selector(self) -> Selector:
        return self.selector or _selector_from_settings(
            kernel=self.kernel,
            length_scale=self.length_scale,
            noise_variance=self.noise_variance,
            alpha=self.alpha,
        )

    def _choose(self, query: Query, pool: CandidatePool, k: int) -> list[Document]:
        """Return copies of up to k of the pool's documents, in order of choice."""
        if not len(pool):
            return []
        selection = self._selector().select(
            query.vector, pool.embeddings, k, relevance=pool.relevance
        )
        return chosen_documents(pool, selection)
