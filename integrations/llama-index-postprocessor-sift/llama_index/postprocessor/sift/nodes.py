"""LlamaIndex's nodes as the core's candidates, and what was chosen of these as nodes again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore, QueryBundle, TextNode
from llama_index.core.utils import get_tokenizer

from sift_core import (
    CandidatePool,
    ChoiceRules,
    ContextSelector,
    InvalidInputError,
    Passage,
    Place,
    Query,
    Selection,
    Selector,
    cosine_similarities,
    pick_metadata,
    pick_scores,
    place_of,
    relevance_of_scores,
    select_texts,
)

METADATA_KEY = "sift"
NODE = "node"  # in a pool's metadata: the node behind a row, with its score
CHUNKS = "chunks"  # there and in what is told of a passage: the ids of its nodes

_DEFAULT_SELECTOR = ContextSelector()


def takes_several(selector: Selector | None) -> bool:
    """Return whether a selector, None for the default, chooses for several queries in turns."""
    return selector is None or isinstance(selector, ContextSelector)


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
        query_embedding: Shape (d,), or (m, d): cosines are those with the nearest of m.
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
        return CandidatePool.empty(dimension=query_embedding.shape[-1])
    if embeddings.shape[1:] != query_embedding.shape[-1:]:
        raise InvalidInputError(
            f"the nodes' vectors must have {query_embedding.shape[-1]} columns like the query, got "
            f"{embeddings.shape[-1]}; were both made by one model?"
        )
    with np.errstate(invalid="ignore", over="ignore"):  # refused below
        similarities = retrieved_by = cosine_similarities(query_embedding, embeddings)
        if query_embedding.ndim == 2:  # LlamaIndex's retrievers look for the mean
            retrieved_by = cosine_similarities(query_embedding.mean(axis=0), embeddings)
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
            retrieved_by,
            document_ids=node_ids,
            use_scores=use_scores,
        ),
    )


def query_of(bundle: QueryBundle, target: npt.NDArray[np.floating]) -> Query:
    """Return what to look for: a query of one vector, or of one for each of its texts."""
    if target.ndim == 1:
        return Query(text=bundle.query_str, embedding=target)
    return Query.of_each(bundle.embedding_strs, target)


def choose_nodes(
    pool: CandidatePool,
    query: npt.NDArray[np.floating],
    top_n: int,
    *,
    selector: Selector | None,
    rules: ChoiceRules,
    tokenizer: Callable[[str], Sequence[Any]] | None,
    keep_embeddings: bool,
    score: str,
) -> list[NodeWithScore]:
    """Return copies of up to `top_n` nodes of a pool in order of choice; see `chosen_nodes`.

    Tokens are those of what an LLM reads of a node, its metadata included, by LlamaIndex' own
    tokenizer (`Settings.tokenizer`) if none is given. Documents are told apart by `ref_doc_id`;
    a node without one is a document of its own.

    Args:
        pool: From `node_pool`.
        query: Shape (d,), or (m, d).
        top_n: How many nodes at most.
        selector: What chooses; None for `ContextSelector`.
        rules: What the choice must keep.
        tokenizer: Counts tokens.
        keep_embeddings: As for `chosen_nodes`.
        score: Likewise.
    """
    nodes = nodes_of(pool)

    def count_tokens(text: str) -> int:
        return len((tokenizer or get_tokenizer())(text))

    selection = select_texts(
        selector or _DEFAULT_SELECTOR,
        query,
        pool.embeddings,
        top_n,
        text_of=lambda row: nodes[row].node.get_content(),
        relevance=pool.relevance,
        **rules.on(
            (node.node.get_content(metadata_mode=MetadataMode.LLM) for node in nodes),
            metadata_of(nodes),
            count_tokens=count_tokens,
            # A pair is nobody's `ref_doc_id`.
            documents=(node.node.ref_doc_id or (NODE, node.node.node_id) for node in nodes),
        ),
    )
    if rules.merge_neighbors:
        pool, selection = rules.merged(
            replace(pool, texts=[node.node.get_content() for node in nodes]),
            selection,
            size=lambda row, text: count_tokens(
                _with_text(nodes[row].node, text).get_content(metadata_mode=MetadataMode.LLM)
            ),
            places=[_place_of(node.node) for node in nodes],
            metadata_of=lambda passage: _passage(nodes, passage),
        )
    return chosen_nodes(pool, selection, keep_embeddings=keep_embeddings, score=score)


def nodes_of(pool: CandidatePool) -> list[NodeWithScore]:
    """Return the nodes of a pool from `node_pool`, as they arrived."""
    return [row[NODE] for row in pool.metadata]


def _place_of(node: BaseNode) -> Place | None:
    start = getattr(node, "start_char_idx", None)
    return place_of(node.ref_doc_id, {"start_char_idx": start})


def _passage(nodes: Sequence[NodeWithScore], passage: Passage) -> dict[str, Any]:
    """Return a pool's metadata for nodes that are one: the first choice with the text of all."""
    chosen = nodes[passage.first]
    node = _with_text(chosen.node, passage.text)
    start = getattr(nodes[passage.rows[0]].node, "start_char_idx", None)
    if isinstance(node, TextNode) and start is not None:
        node.start_char_idx, node.end_char_idx = start, start + len(passage.text)
    return {
        NODE: chosen.model_copy(update={"node": node}),
        CHUNKS: [nodes[row].node.node_id for row in passage.rows],
    }


def _with_text(node: BaseNode, text: str) -> BaseNode:
    copy = node.model_copy()
    copy.set_content(text)
    return copy


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
    nor embedder reads it, and its score by `sift_core.pick_scores`. A passage has the ids of its
    nodes there, under "chunks".

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
        chunks = {key: value for key, value in pool.metadata[position].items() if key == CHUNKS}
        node = _explained(arrived.node, {**told, **chunks})
        if keep_embeddings:
            node.embedding = pool.embeddings[position].tolist()
        chosen.append(arrived.model_copy(update={"node": node, "score": value}))
    return chosen


def _explained(node: BaseNode, explanation: Mapping[str, Any]) -> BaseNode:
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
