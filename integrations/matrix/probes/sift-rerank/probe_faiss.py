"""A flat index."""

import faiss

from sift_core import Query
from sift_core.sources import FaissSource
from sift_core.testing import HashingEmbedder

embedder = HashingEmbedder()
index = faiss.IndexFlatIP(64)
index.add(embedder.embed_documents(["tea", "boats"]))
store = FaissSource(index, ["tea", "boats"], embedder_name=embedder.name)
pool = store.fetch(Query(text="tea", embedding=embedder.embed_query("tea")), n_candidates=1)
assert pool.texts == ("tea",), pool
