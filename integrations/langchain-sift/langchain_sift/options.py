"""The options of a choice with LangChain's defaults."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from langchain_sift.vectors import VectorsById
from sift_core import ChoiceOptions
from sift_core.option_fields import ChoiceFields


class LangChainOptions(ChoiceFields):
    """The options of `SIFTRetriever` and `SIFTCompressor`, and two arguments that both have."""

    score: Literal["variance", "similarity"] | None = None
    vectors: VectorsById | None = Field(default=None, exclude=True, repr=False)

    def _options(self, **counts: int) -> ChoiceOptions:
        """Return the options of a choice, with the number of chunks under the core's names.

        Raises:
            InvalidInputError: If they do not go together.
        """
        return self.choice_options(
            document_key=self.document_key or "source",
            **counts,
        )
