"""A reranker of nodes with embeddings."""

from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from llama_index.postprocessor.sift import SIFTReranker
from sift_core.testing import HashingEmbedder

embedder, texts = HashingEmbedder(), ["tea", "tea", "boats"]
vectors = embedder.embed_documents(texts).tolist()
nodes = [
    NodeWithScore(node=TextNode(text=text, embedding=vector), score=0.5)
    for text, vector in zip(texts, vectors, strict=True)
]
question = "tea or boats"
query = QueryBundle(question, embedding=embedder.embed_query(question).tolist())
chosen = SIFTReranker(top_n=2).postprocess_nodes(nodes, query)
assert {node.text for node in chosen} == {"tea", "boats"}, chosen
