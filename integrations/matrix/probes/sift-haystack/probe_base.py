"""A ranker of documents with embeddings."""

from haystack import Document

from haystack_integrations.components.rankers.sift import SIFTRanker
from sift_core.testing import HashingEmbedder

embedder, texts = HashingEmbedder(), ["tea", "tea leaves", "boats"]
vectors = embedder.embed_documents(texts).tolist()
documents = [
    Document(content=text, embedding=vector) for text, vector in zip(texts, vectors, strict=True)
]
question = "tea or boats"
asked = embedder.embed_query(question).tolist()
chosen = SIFTRanker(top_k=2).run(documents, query=question, query_embedding=asked)["documents"]
assert "boats" in {document.content for document in chosen}, chosen
