"""What reranker and retriever have in common: settings, and the one call to the core."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from llama_index.core.schema import NodeWithScore

from llama_index.postprocessor.sift.chosen_nodes import chosen_nodes
from llama_index.postprocessor.sift.cosines import cosines
from llama_index.postprocessor.sift.embeddings import Matrix
from llama_index.postprocessor.sift.node_pools import NODE
from llama_index.postprocessor.sift.node_scores import relevance_of, scores_of
from llama_index.postprocessor.sift.stored_vectors import Vector
from sift_core import (
    CandidatePool,
    ContextSelector,
    InvalidInputError,
    SIFTSelector,
    selector_from_settings,
)


@dataclass(frozen=True, kw_only=True, eq=False)
class NodeChooser:
    """Chooses nodes as settings say. Holds no state, so any number of threads may use it.

    Args:
        selector: What chooses.
        top_n: How many nodes to keep at most, >= 1.
        use_scores: See `node_scores.relevance_of`.
        keep_embeddings: Whether vectors are put on the chosen nodes.
    """

    selector: ContextSelector | SIFTSelector
    top_n: int
    use_scores: bool | None
    keep_embeddings: bool

    @classmethod
    def from_settings(
        cls,
        *,
        top_n: int,
        kernel: str,
        length_scale: float | None,
        noise_variance: float | None,
        alpha: float | None,
        use_scores: bool | None,
        keep_embeddings: bool,
    ) -> NodeChooser:
        """Return the chooser that settings describe.

        Raises:
            InvalidInputError: If one is out of range or has no effect with this kernel.
        """
        if use_scores and kernel != "auto":
            raise InvalidInputError(
                f'`use_scores` has no effect with kernel={kernel!r}; pass kernel="auto"'
            )
        selector = selector_from_settings(
            kernel=kernel,  # type: ignore[arg-type]  # checked there
            length_scale=length_scale,
            noise_variance=noise_variance,
            alpha=alpha,
        )
        return cls(
            selector=selector,
            top_n=top_n,
            use_scores=use_scores,
            keep_embeddings=keep_embeddings,
        )

    def best(self, nodes: Sequence[NodeWithScore], n: int | None) -> Sequence[NodeWithScore]:
        """Return the n nodes with the best scores, in order of arrival; the first n without.

        All of them for n = None.
        """
        if n is None or len(nodes) <= n:
            return nodes
        scores = scores_of(nodes, use_scores=self.use_scores)
        if scores is None:
            return nodes[:n]
        return [nodes[i] for i in np.sort(np.argsort(-scores, kind="stable")[:n]).tolist()]

    def choose(
        self, nodes: Sequence[NodeWithScore], target: Vector, embeddings: Matrix
    ) -> list[NodeWithScore]:
        """Return copies of the nodes that the core selects, in order of choice.

        Args:
            nodes: n nodes in order of arrival.
            target: The query's vector, shape (d,).
            embeddings: Shape (n, d).

        Raises:
            InvalidInputError: If vectors do not fit together, or scores are missing that
                must be used.
        """
        if not nodes:
            return []
        similarities = cosines(target, nodes, embeddings)
        relevance = relevance_of(nodes, similarities, use_scores=self.use_scores)
        return self._chosen(nodes, target, embeddings, similarities, relevance)

    def choose_from(self, pool: CandidatePool, target: Vector) -> list[NodeWithScore]:
        """Return what `choose` does from a pool that `node_pool` made."""
        if not len(pool):
            return []
        nodes = [metadata[NODE] for metadata in pool.metadata]
        return self._chosen(nodes, target, pool.embeddings, pool.similarities, pool.relevance)

    def _chosen(
        self,
        nodes: Sequence[NodeWithScore],
        target: Vector,
        embeddings: Matrix,
        similarities: Vector,
        relevance: Vector | None,
    ) -> list[NodeWithScore]:
        selection = self.selector.select(target, embeddings, self.top_n, relevance=relevance)
        return chosen_nodes(
            nodes,
            selection,
            similarities=similarities,
            embeddings=embeddings,
            keep_embeddings=self.keep_embeddings,
        )
