"""LlamaIndex's nodes as the core's candidates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from llama_index.core.schema import MetadataMode, NodeWithScore

from llama_index.postprocessor.sift.cosines import cosines
from llama_index.postprocessor.sift.node_scores import relevance_of
from sift_core import CandidatePool

NODE = "node"


def distinct_nodes(nodes: Sequence[NodeWithScore]) -> list[NodeWithScore]:
    """Return the nodes without those that came before, as from two retrievers, in their order.

    Of one node are those with its id and its text: pieces of a node may share its id.
    """
    texts_of: dict[str, list[str]] = {}
    twice = {node_id for node_id, n in Counter(n.node.node_id for n in nodes).items() if n > 1}
    distinct = []
    for node in nodes:
        if node.node.node_id in twice:
            texts = texts_of.setdefault(node.node.node_id, [])
            if node.node.get_content() in texts:
                continue
            texts.append(node.node.get_content())
        distinct.append(node)
    return distinct


def node_pool(
    query_embedding: npt.NDArray[np.floating],
    nodes: Sequence[NodeWithScore],
    embeddings: npt.NDArray[np.floating],
    *,
    use_scores: bool | None = None,
) -> CandidatePool:
    """Return nodes as a pool; row i is node i.

    Document ids are the nodes' ids. Texts are what LlamaIndex's own synthesizers give to the
    LLM: the content with the metadata that is not hidden from it. `pool.metadata[i]["node"]`
    is the node itself, with its score, so that what is chosen can be given back.

    Args:
        query_embedding: Shape (d,).
        nodes: n nodes in order of arrival.
        embeddings: Shape (n, d), row i the vector of node i.
        use_scores: Whether the nodes' scores become the pool's `relevance`; None for where
            they say more than the cosines do (see `node_scores.relevance_of`).

    Raises:
        InvalidInputError: If a vector is all zero or not finite, or dimensions differ; if
            `use_scores` is True and a node has no finite score.
    """
    if not nodes:
        return CandidatePool.empty(dimension=len(query_embedding))
    similarities = cosines(query_embedding, nodes, embeddings)
    return CandidatePool(
        document_ids=[node.node.node_id for node in nodes],
        texts=[node.node.get_content(metadata_mode=MetadataMode.LLM) for node in nodes],
        embeddings=embeddings,
        similarities=similarities,
        metadata=[{NODE: node} for node in nodes],
        relevance=relevance_of(nodes, similarities, use_scores=use_scores),
    )
