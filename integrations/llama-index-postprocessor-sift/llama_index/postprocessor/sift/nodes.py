"""LlamaIndex's nodes as candidates of the core, and what was chosen of these as nodes again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore, QueryBundle, TextNode
from llama_index.core.utils import get_tokenizer

from sift_core import CandidatePool, Chosen, ContextSelector, Query, Selector
from sift_core.places import Place
from sift_core.plugins import pool_for_query

METADATA_KEY = "sift"

Score: TypeAlias = Literal["variance", "similarity"]
"""What the score of a chosen node is, see `sift_core.Chosen.scores`."""


class NodeTexts(Sequence[str]):
    """The texts of nodes, each made when it is asked for, by its position.

    With `words` a choice reads each text once. Without, it reads those of the chosen nodes alone:
    making those of 200 takes as long as a selection.
    """

    def __init__(self, nodes: Sequence[NodeWithScore], mode: MetadataMode) -> None:
        self._nodes = nodes
        self._mode = mode

    def __len__(self) -> int:
        return len(self._nodes)

    def __getitem__(self, row: Any) -> Any:
        return self._nodes[row].node.get_content(metadata_mode=self._mode)


class NodePool(CandidatePool):
    """Nodes as candidates: `items` are the nodes, `metadata` and `scores` their own."""

    def place(self, row: int, document_key: str | None = None) -> Place:
        """Return where a node stands: `start_char_idx` in the text of its `ref_doc_id`.

        Its document is named by its metadata under `document_key`, else by `ref_doc_id`.
        """
        node: BaseNode = self.items[row].node
        source = node.ref_doc_id or None
        name = None if document_key is None else node.metadata.get(document_key)
        start = None if source is None else getattr(node, "start_char_idx", None)
        return Place(source if name is None else str(name), start, source)

    def as_read(self, row: int, text: str) -> str:
        """Return what an LLM reads of a node with this text: its metadata and the text."""
        node: BaseNode = self.items[row].node
        if text != node.get_content(metadata_mode=MetadataMode.NONE):
            node = node.model_copy()
            node.set_content(text)
        return node.get_content(metadata_mode=MetadataMode.LLM)


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

    Two are one node if they have the same id and text: pieces of a node may share its id.
    """
    if len(set(ids_of(nodes))) == len(nodes):
        return list(nodes)
    first: dict[tuple[str, str], NodeWithScore] = {}
    for node in nodes:
        first.setdefault((node.node.node_id, node.node.get_content()), node)
    return list(first.values())


def node_pool(
    target: npt.NDArray[np.floating],
    nodes: Sequence[NodeWithScore],
    vectors: Sequence[Any] | npt.NDArray[np.floating],
    *,
    use_scores: bool | None = None,
    for_llm: bool = False,
) -> CandidatePool:
    """Return n nodes and n vectors as a pool, whose `items` are the nodes, in order of arrival.

    Arguments and errors are those of `sift_core.plugins.pool_for_query`. `use_scores` is None by
    default: scores count if they say more than the cosines. With `for_llm` texts are what
    LlamaIndex's own synthesizers give to an LLM: the content with the metadata that is not hidden
    from it. Default: the content, in a `NodePool`, which adds metadata where tokens are counted.
    """
    return pool_for_query(
        CandidatePool if for_llm else NodePool,
        target,
        vectors,
        use_scores=use_scores if nodes else False,
        # LlamaIndex's retrievers look for the mean.
        searched_by=target.mean(axis=0) if target.ndim == 2 else None,
        document_ids=ids_of(nodes),
        texts=NodeTexts(nodes, MetadataMode.LLM if for_llm else MetadataMode.NONE),
        metadata=[node.node.metadata for node in nodes],
        scores=[node.score for node in nodes],
        items=nodes,
    )


def query_of(bundle: QueryBundle, target: npt.NDArray[np.floating]) -> Query:
    """Return what to look for: a query of one vector, or of one for each of its texts."""
    if target.ndim == 1:
        return Query(text=bundle.query_str, embedding=target)
    return Query.of_each(bundle.embedding_strs, target)


def takes_several(selector: Selector | None) -> bool:
    """Return whether a selector chooses for several queries in turns. None is the default one."""
    return selector is None or isinstance(selector, ContextSelector)


def count_tokens(text: str) -> int:
    """Return how many tokens a text has by `Settings.tokenizer`."""
    return len(get_tokenizer()(text))


def chosen_nodes(
    chosen: Chosen, *, score: Score = "variance", keep_embeddings: bool = False
) -> list[NodeWithScore]:
    """Return copies of the chosen nodes in order of choice; the originals are not changed.

    Why each was chosen (`sift_core.Pick`) is in `metadata["sift"]`, where neither LLM nor
    embedder reads it. A passage is a copy of the node that was chosen first, with the text of all.

    Args:
        chosen: From a pool of `node_pool`.
        score: Which score the copies have.
        keep_embeddings: Whether to put the vectors used on the copies. Default: to leave what is
            there.
    """
    pool, found = chosen.pool, []
    picks = zip(chosen.picks, chosen.passages, chosen.scores(score), strict=True)
    for pick, passage, value in picks:
        arrived: NodeWithScore = pool.items[pick.row]
        node = _explained(arrived.node, pick.as_dict())
        if pick.chunks:
            node.set_content(passage.text)
            if isinstance(node, TextNode):
                node.start_char_idx = pool.items[passage.rows[0]].node.start_char_idx
                node.end_char_idx = (node.start_char_idx or 0) + len(passage.text)
        if keep_embeddings:
            node.embedding = pool.embeddings[pick.row].tolist()
        found.append(arrived.model_copy(update={"node": node, "score": value}))
    return found


def _explained(node: BaseNode, explanation: Mapping[str, Any]) -> BaseNode:
    """Return a copy that carries `explanation` where neither LLM nor embedder reads it."""
    keys = ("excluded_llm_metadata_keys", "excluded_embed_metadata_keys")
    hidden = {name: list(dict.fromkeys([*getattr(node, name), METADATA_KEY])) for name in keys}
    metadata = ExplainedMetadata({**node.metadata, METADATA_KEY: explanation})
    relationships = dict(node.relationships)
    update = {**hidden, "metadata": metadata, "relationships": relationships}
    return node.model_copy(update=update)
