"""Turns a selection into copies of the chosen nodes, leaving the originals as they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from llama_index.core.schema import BaseNode, NodeWithScore

from sift_core import Selection

METADATA_KEY = "sift"


def chosen_nodes(
    nodes: Sequence[NodeWithScore],
    selection: Selection,
    *,
    embeddings: npt.NDArray[np.float64] | None = None,
) -> list[NodeWithScore]:
    """Return copies of the chosen nodes in order of choice.

    Args:
        nodes: The n nodes that the selection chose from.
        selection: Positions in `nodes`, with the variance before and after each choice.
        embeddings: Shape (n, d), put on the copies; None leaves `embedding` as it is.
    """
    variances = selection.variances.tolist()
    scores = _strictly_falling(variances[:-1])
    chosen = []
    for step, position in enumerate(selection.positions.tolist()):
        found = nodes[position]
        explanation = {
            "retrieval_score": None if found.score is None else float(found.score),
            "gain": variances[step] - variances[step + 1],
            "variance_before": variances[step],
            "variance_after": variances[step + 1],
        }
        node = _explained(found.node, explanation)
        if embeddings is not None:
            node.embedding = embeddings[position].tolist()
        chosen.append(found.model_copy(update={"node": node, "score": scores[step]}))
    return chosen


def _explained(node: BaseNode, explanation: dict[str, Any]) -> BaseNode:
    """Return a copy that carries `explanation` where neither LLM nor embedder reads it."""
    return node.model_copy(
        update={
            "metadata": {**node.metadata, METADATA_KEY: explanation},
            "excluded_llm_metadata_keys": _with_key(node.excluded_llm_metadata_keys),
            "excluded_embed_metadata_keys": _with_key(node.excluded_embed_metadata_keys),
            "relationships": dict(node.relationships),
        }
    )


def _with_key(keys: list[str]) -> list[str]:
    return keys if METADATA_KEY in keys else [*keys, METADATA_KEY]


def _strictly_falling(values: Sequence[float]) -> list[float]:
    """Return the values with ties broken by one rounding step, so that any sort keeps them."""
    falling: list[float] = []
    for value in values:
        falling.append(min(value, math.nextafter(falling[-1], -math.inf)) if falling else value)
    return falling
