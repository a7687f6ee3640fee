"""The cosine that an embedder gives to unrelated texts."""

from __future__ import annotations

import numpy as np

from sift_core.protocols import Embedder
from sift_core.selection.kernels import unit_rows

SENTENCES = (
    "The cat sleeps on the warm roof.",
    "Interest rates rose by a quarter of a percent.",
    "Boil the rice for twelve minutes.",
    "The treaty was signed in Vienna.",
    "Press the red button to stop the motor.",
    "Her violin needs new strings.",
    "Penguins breed on the ice in winter.",
    "The patch fixes a memory leak.",
)


def baseline_of(embedder: Embedder | None) -> float:
    """Return the median cosine of eight unrelated sentences, in [0, 1]; 0 without an embedder.

    Costs the embedding of eight short texts. MiniLM has 0.02, others up to 0.8.
    """
    if embedder is None:
        return 0.0
    rows = unit_rows(np.asarray(embedder.embed_documents(SENTENCES), dtype=np.float64))
    return max(0.0, float(np.median((rows @ rows.T)[np.triu_indices(len(rows), 1)])))
