"""The options of a choice with LangChain's defaults, and the choice by them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

from langchain_core.documents import Document
from pydantic import Field

from langchain_sift.documents import chosen_documents
from langchain_sift.embedder import LangChainEmbedder
from langchain_sift.vectors import VectorsById
from sift_core import CandidateSource, ChoiceOptions, Query, asearch, search
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

    def _chosen(
        self,
        source: CandidateSource,
        embedder: LangChainEmbedder,
        texts: Sequence[str],
        options: ChoiceOptions,
    ) -> list[Document]:
        """Return the documents chosen for a question, or for several texts in turns."""
        query = Query.of_each(texts, [embedder.embed_query(text) for text in texts])
        return chosen_documents(search(source, query, options), self.score)

    async def _achosen(
        self,
        source: CandidateSource,
        embedder: LangChainEmbedder,
        texts: Sequence[str],
        options: ChoiceOptions,
    ) -> list[Document]:
        """Return what `_chosen` does; what has no async form runs in a thread."""
        query = Query.of_each(texts, [await embedder.aembed_query(text) for text in texts])
        chosen = await asearch(source, query, options)
        return await asyncio.to_thread(chosen_documents, chosen, self.score)
