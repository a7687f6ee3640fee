"""A collection in memory."""

from uuid import uuid4

from qdrant_client import QdrantClient

from sift_core import Document, Query
from sift_core.sources import QdrantSource
from sift_core.testing import HashingEmbedder

embedder = HashingEmbedder()
store = QdrantSource(QdrantClient(":memory:"), "probe", embedder_name=embedder.name)
store.prepare(embedder_name=embedder.name, dimension=64)
documents = [Document(document_id="a", text="tea")]
store.add([str(uuid4())], documents, embedder.embed_documents(["tea"]))
pool = store.fetch(Query(text="tea", embedding=embedder.embed_query("tea")), n_candidates=5)
assert pool.texts == ("tea",), pool
