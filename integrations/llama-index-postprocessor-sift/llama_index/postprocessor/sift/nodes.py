"""LlamaIndex's nodes as the core's candidates, and what was chosen of these as nodes again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore
from llama_index.core.utils import get_tokenizer

from sift_core import (
    CandidatePool,
    ChoiceRules,
    InvalidInputError,
    Selection,
    cosine_similarities,
    pick_metadata,
    pick_scores,
    relevance_of_scores,
)

METADATA_KEY = "sift"
NODE = "node"  # in a pool's metadata: the node behind a row, with its score


class ExplainedMetadata(dict[str, Any]):
    """A node's metadata with the explanation in it, which `str` leaves out and `repr` shows.

    `TextNode.hash` is made of `str(metadata)`, and LlamaIndex's fusion adds up the scores of
    nodes with one hash: a node must look the same to it from each retriever.
    """

    def __str__(self) -> str:
        """Return what the metadata was before."""
        return str({key: value for key, value in self.items() if key != METADATA_KEY})


def ids_of(nodes: Sequence[NodeWithScore]) -> list[str]:
    """Return the ids of nodes, in their order."""
    return [node.node.id_ for node in nodes]  # the same as `node_id`, a slow property


def distinct_nodes(nodes: Sequence[NodeWithScore]) -> list[NodeWithScore]:
    """Return the nodes without those that came before, as from two retrievers, in their order.

    Of one node are those with its id and its text: pieces of a node may share its id.
    """
    if len(set(ids_of(nodes))) == len(nodes):
        return list(nodes)
    first: dict[tuple[str, str], NodeWithScore] = {}
    for node in nodes:
        first.setdefault((node.node.node_id, node.node.get_content()), node)
    return list(first.values())


def node_pool(
    query_embedding: npt.NDArray[np.floating],
    nodes: Sequence[NodeWithScore],
    embeddings: npt.NDArray[np.floating],
    *,
    node_ids: Sequence[str] | None = None,
    use_scores: bool | None = None,
    with_texts: bool = False,
) -> CandidatePool:
    """Return nodes as a pool; row i is node i, which is in `pool.metadata[i]["node"]`.

    Args:
        query_embedding: Shape (d,).
        nodes: n nodes in order of arrival.
        embeddings: Shape (n, d), row i the vector of node i.
        node_ids: Their ids, where these were read before.
        use_scores: Whether the nodes' scores become the pool's `relevance`; None for where
            they say more than the cosines do, see `sift_core.relevance_of_scores`.
        with_texts: Whether the pool has what LlamaIndex's own synthesizers give to an LLM, the
            content with the metadata that is not hidden from it; else empty texts. A selection
            needs none, and those of 200 nodes cost as much as the selection.

    Raises:
        InvalidInputError: If a vector is not finite, or dimensions differ; if `use_scores` is
            True and a node has no finite score.
    """
    if not nodes:
        return CandidatePool.empty(dimension=len(query_embedding))
    if embeddings.shape[1:] != query_embedding.shape:
        raise InvalidInputError(
            f"the nodes' vectors must have {query_embedding.size} columns like the query, got "
            f"{embeddings.shape[-1]}; were both made by one model?"
        )
    with np.errstate(invalid="ignore", over="ignore"):  # refused below
        similarities = cosine_similarities(query_embedding, embeddings)
    texts = [""] * len(nodes)
    if with_texts:
        texts = [node.node.get_content(metadata_mode=MetadataMode.LLM) for node in nodes]
    node_ids = ids_of(nodes) if node_ids is None else node_ids
    return CandidatePool(
        document_ids=node_ids,
        texts=texts,
        embeddings=embeddings,
        similarities=similarities,
        metadata=[{NODE: node} for node in nodes],
        relevance=relevance_of_scores(
            [node.score for node in nodes],
            similarities,
            document_ids=node_ids,
            use_scores=use_scores,
        ),
    )


def told_of(
    nodes: Sequence[NodeWithScore],
    rules: ChoiceRules,
    tokenizer: Callable[[str], Sequence[Any]] | None,
) -> dict[str, Any]:
    """Return what a selector's `select` takes of the rules for these nodes; empty without any.

    Tokens are those of what an LLM reads of a node, its metadata included, by LlamaIndex' own
    tokenizer (`Settings.tokenizer`) if none is given. Documents are told apart by `ref_doc_id`;
    a node without one is a document of its own.
    """
    return rules.on(
        (node.node.get_content(metadata_mode=MetadataMode.LLM) for node in nodes),
        metadata_of(nodes),
        count_tokens=lambda text: len((tokenizer or get_tokenizer())(text)),
        # A pair is nobody's `ref_doc_id`.
        documents=(node.node.ref_doc_id or (NODE, node.node.node_id) for node in nodes),
    )


def metadata_of(nodes: Sequence[NodeWithScore]) -> list[dict[str, Any]]:
    """Return the metadata of nodes, in their order."""
    return [node.node.metadata for node in nodes]


def chosen_nodes(
    pool: CandidatePool,
    selection: Selection,
    *,
    keep_embeddings: bool = False,
    score: str = "variance",
) -> list[NodeWithScore]:
    """Return copies of the chosen nodes in order of choice; the originals are not changed.

    Each has what `sift_core.pick_metadata` says of it in `metadata["sift"]`, where neither LLM
    nor embedder reads it, and its score by `sift_core.pick_scores`.

    Args:
        pool: From `node_pool`.
        selection: What was chosen from it.
        keep_embeddings: Whether to put the vectors used on the copies, or to leave what is there.
        score: Which score.
    """
    positions = selection.positions.tolist()
    chosen = []
    for position, told, value in zip(
        positions,
        pick_metadata(pool, selection),
        pick_scores(pool, selection, score=score),
        strict=True,
    ):
        arrived: NodeWithScore = pool.metadata[position][NODE]
        told["score"] = None if arrived.score is None else float(arrived.score)
        node = _explained(arrived.node, told)
        if keep_embeddings:
            node.embedding = pool.embeddings[position].tolist()
        chosen.append(arrived.model_copy(update={"node": node, "score": value}))
    return chosen


def _explained(node: BaseNode, explanation: dict[str, float | None]) -> BaseNode:
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
