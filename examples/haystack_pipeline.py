"""SIFTRanker in a Haystack pipeline, beside what its retriever finds nearest.

make demo                                        # fills the collection
.venv/bin/python examples/haystack_pipeline.py
"""

from __future__ import annotations

from demo_store import COLLECTION, EMBEDDER, QUESTION, demo_client
from haystack import Document, Pipeline, component
from haystack.components.retrievers.in_memory import InMemoryEmbeddingRetriever
from haystack.document_stores.in_memory import InMemoryDocumentStore
from qdrant_client import QdrantClient

from haystack_integrations.components.rankers.sift import SIFTRanker
from sift_core.embedders import SentenceTransformerEmbedder

TOP_K = 8


@component
class QuestionEmbedder:
    """Stands for your text embedder."""

    def __init__(self) -> None:
        self.model = SentenceTransformerEmbedder(EMBEDDER)

    @component.output_types(embedding=list[float])
    def run(self, text: str) -> dict[str, list[float]]:
        return {"embedding": self.model.embed_query(text).tolist()}


def main() -> None:
    with demo_client() as client:
        store = copied(client)
    pipeline = Pipeline()
    pipeline.add_component("embedder", QuestionEmbedder())
    pipeline.add_component(
        "retriever", InMemoryEmbeddingRetriever(store, top_k=200, return_embedding=True)
    )
    pipeline.add_component("ranker", SIFTRanker(top_k=TOP_K))
    pipeline.connect("embedder.embedding", "retriever.query_embedding")
    pipeline.connect("embedder.embedding", "ranker.query_embedding")  # nothing is embedded again
    pipeline.connect("retriever.documents", "ranker.documents")
    asked = {"embedder": {"text": QUESTION}, "ranker": {"query": QUESTION}}  # its words count too
    found = pipeline.run(asked, include_outputs_from={"retriever"})
    print(QUESTION)
    for heading, name in (("nearest neighbours", "retriever"), ("SIFTRanker", "ranker")):
        print(f"\n{heading}")
        for document in found[name]["documents"][:TOP_K]:
            print(f"  {document.meta['source']}")


def copied(client: QdrantClient) -> InMemoryDocumentStore:
    """Return Haystack's own store with the demo's chunks and their vectors."""
    points, _ = client.scroll(COLLECTION, limit=10_000, with_vectors=True)
    store = InMemoryDocumentStore(embedding_similarity_function="cosine")
    store.write_documents(
        [
            Document(
                id=str(point.id),
                content=(payload := point.payload or {})["text"],
                meta={name: value for name, value in payload.items() if name != "text"},
                # The unnamed vector, beside which a collection may keep words.
                embedding=point.vector[""] if isinstance(point.vector, dict) else point.vector,  # type: ignore[arg-type]
            )
            for point in points
        ]
    )
    return store


if __name__ == "__main__":
    main()
