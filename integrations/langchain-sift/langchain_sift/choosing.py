"""One selection by the core, and its translation back into documents."""

from __future__ import annotations

from typing import Literal

from langchain_core.documents import Document
from pydantic import BaseModel

from langchain_sift.candidates import FloatArray, cosines
from sift_core import (
    CandidatePool,
    ContextSelector,
    Query,
    Selection,
    SIFTSelector,
    selector_from_settings,
)


class SelectorSettings(BaseModel):
    """What the retriever and the compressor let one set about the choice.

    Args:
        kernel: "auto", "rbf" or "linear".
        length_scale: For "rbf" alone; None for the core's default.
        noise_variance: λ > 0; None for the kernel's default.
        alpha: Adaptive stop; None never stops.
    """

    kernel: Literal["auto", "rbf", "linear"] = "auto"
    length_scale: float | None = None
    noise_variance: float | None = None
    alpha: float | None = None

    def _choose(self, query: Query, pool: CandidatePool, k: int) -> list[Document]:
        """Return copies of up to k of the pool's documents, in order of choice.

        A pool's relevance counts with kernel "auto"; the others see embeddings alone.
        """
        if not len(pool):
            return []
        selection = self._selector().select(
            query.vector, pool.embeddings, k, relevance=pool.relevance
        )
        return chosen_documents(pool, selection)

    def _selector(self) -> ContextSelector | SIFTSelector:
        return selector_from_settings(
            kernel=self.kernel,
            length_scale=self.length_scale,
            noise_variance=self.noise_variance,
            alpha=self.alpha,
        )


def chosen_documents(pool: CandidatePool, selection: Selection) -> list[Document]:
    """Return copies of the chosen documents, in order of choice, with a "sift" in metadata.

    The originals are not modified, nor is anything that they hold shared.

    Args:
        pool: Rows with "document" in `metadata`, and "score" where the store gave one.
        selection: What was chosen from it.
    """
    chosen = pool.take(selection.positions)
    redundancies = _redundancies(chosen.embeddings)
    documents = []
    for step, row in enumerate(chosen.metadata):
        document: Document = row["document"].model_copy(deep=True)
        document.metadata["sift"] = {
            "similarity": float(chosen.similarities[step]),
            "gain": float(selection.gains[step]),
            "variance_before": float(selection.variances[step]),
            "variance_after": float(selection.variances[step + 1]),
            "redundancy": redundancies[step],
        }
        if "score" in row:
            document.metadata["sift"]["score"] = row["score"]
        documents.append(document)
    return documents


def _redundancies(embeddings: FloatArray) -> list[float | None]:
    """Return the largest cosine of each row with those before it; None for the first."""
    products = cosines(embeddings, embeddings)
    return [float(products[i, :i].max()) if i else None for i in range(len(products))]
