"""Turns a selection into copies of the chosen nodes, leaving the originals as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from llama_index.core.schema import BaseNode, NodeWithScore

from sift_core import Selection

METADATA_KEY = "sift"


class ExplainedMetadata(dict[str, Any]):
    """A node's metadata with the explanation in it, which `str` leaves out and `repr` shows.

    `TextNode.hash` is made of `str(metadata)`, and LlamaIndex's fusion adds up the scores of
    nodes with one hash: a node must look the same to it from each retriever.
    """

    def __str__(self) -> str:
        """Return what the metadata was before."""
        return str({key: value for key, value in self.items() if key != METADATA_KEY})


def chosen_nodes(
    nodes: Sequence[NodeWithScore],
    selection: Selection,
    *,
    similarities: npt.NDArray[np.floating],
    embeddings: npt.NDArray[np.floating],
    keep_embeddings: bool = False,
) -> list[NodeWithScore]:
    """Return copies of the chosen nodes in order of choice.

    Args:
        nodes: The n nodes that the selection chose from.
        selection: Positions in `nodes`, with the variance before and after each choice.
        similarities: The cosine of each node and the query, shape (n,).
        embeddings: Shape (n, d).
        keep_embeddings: Whether to put these on the copies, or to leave `embedding` as it is.
    """
    positions = selection.positions.tolist()
    variances = selection.variances.tolist()
    scores = _strictly_falling(variances[:-1])
    redundancies = _redundancies(embeddings[selection.positions])
    chosen = []
    for step, position in enumerate(positions):
        found = nodes[position]
        explanation = {
            "retrieval_score": None if found.score is None else float(found.score),
            "relevance": float(similarities[position]),
            "redundancy": redundancies[step],
            "gain": variances[step] - variances[step + 1],
            "variance_before": variances[step],
            "variance_after": variances[step + 1],
        }
        node = _explained(found.node, explanation)
        if keep_embeddings:
            node.embedding = embeddings[position].tolist()
        chosen.append(found.model_copy(update={"node": node, "score": scores[step]}))
    return chosen


def _redundancies(chosen: npt.NDArray[np.floating]) -> list[float | None]:
    """Return the largest cosine of each row (k, d) with one before it; None for the first."""
    rows = chosen.astype(np.float64)
    rows /= np.abs(rows).max(axis=1, keepdims=True, initial=0.0)  # squares stay in float64
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    cosines = np.clip(rows @ rows.T, -1.0, 1.0)
    return [float(cosines[i, :i].max()) if i else None for i in range(len(rows))]


def _explained(node: BaseNode, explanation: dict[str, Any]) -> BaseNode:
    """Return a copy that carries `explanation` where neither LLM nor embedder reads it."""
    return node.model_copy(
        update={
            "metadata": ExplainedMetadata({**node.metadata, METADATA_KEY: explanation}),
            "excluded_llm_metadata_keys": _with_key(node.excluded_llm_metadata_keys),
            "excluded_embed_metadata_keys": _with_key(node.excluded_embed_metadata_keys),
            "relationships": dict(node.relationships),
        }
    )


def _with_key(keys: list[str]) -> list[str]:
    return keys if METADATA_KEY in keys else [*keys, METADATA_KEY]


def _strictly_falling(values: Sequence[float]) -> list[float]:
    """Return the values with ties broken by one rounding step, so that any sort keeps them.

    A step of single precision, in which BEIR's evaluation compares.
    """
    falling: list[float] = []
    for value in values:
        if falling and np.float32(value) >= np.float32(falling[-1]):
            value = float(np.nextafter(np.float32(falling[-1]), np.float32(-np.inf)))
        falling.append(value)
    return falling
