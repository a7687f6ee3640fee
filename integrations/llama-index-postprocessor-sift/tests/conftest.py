"""Real stores, a deterministic embedding model, and a corpus with many wordings of one fact."""

import re
import zlib
from uuid import uuid4

import faiss
import numpy as np
import pytest
from llama_index.core import StorageContext, VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import Field, PrivateAttr
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.llms import MockLLM
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores import SimpleVectorStore
from llama_index.vector_stores.faiss import FaissMapVectorStore, FaissVectorStore
from llama_index.vector_stores.qdrant import QdrantVectorStore
from qdrant_client import AsyncQdrantClient, QdrantClient, models

from llama_index.postprocessor.sift import vectors
from sift_core.plugins import SeenFacts

QUESTION = "how do bees find the way home"
REPEATED = [f"bees find the way home by the sun{i * '!'}" for i in range(8)]
DISTINCT = [
    "bees find the way home by landmarks and memory",
    "bees find home by smell on the way",
    "how far the way is bees find in a dance",
]
UNRELATED = [f"steel number {i} melts in furnace {i * 7}" for i in range(9)]


class WordEmbedding(BaseEmbedding):
    """Counts words into hashed buckets; remembers what it was asked to embed."""

    dimension: int = 96
    _texts: list[str] = PrivateAttr(default_factory=list)
    _queries: list[str] = PrivateAttr(default_factory=list)

    @property
    def texts(self):
        return self._texts

    @property
    def queries(self):
        return self._queries

    def forget(self):
        self._texts.clear()
        self._queries.clear()

    def vector(self, text):
        vector = np.full(self.dimension, 1e-3)
        for word in re.findall(r"\w+", text.lower()):
            vector[zlib.crc32(word.encode()) % self.dimension] += 1.0
        return (vector / np.linalg.norm(vector)).tolist()

    def _get_text_embedding(self, text):
        self._texts.append(text)
        return self.vector(text)

    def _get_query_embedding(self, query):
        self._queries.append(query)
        return self.vector(query)

    async def _aget_query_embedding(self, query):
        return self._get_query_embedding(query)


def make_nodes(texts):
    """Give the n-th text a UUID of its own, the same in every test."""
    return [
        TextNode(id_=f"00000000-0000-4000-8000-{i:012d}", text=text) for i, text in enumerate(texts)
    ]


def make_store(kind, dimension):
    if kind == "simple":
        return SimpleVectorStore()
    if kind == "faiss":
        return FaissVectorStore(faiss.IndexFlatIP(dimension))
    if kind == "faiss map":
        return FaissMapVectorStore(faiss.IndexIDMap2(faiss.IndexFlatIP(dimension)))
    if kind == "chroma":
        chroma = pytest.importorskip(
            "llama_index.vector_stores.chroma",
            reason="pip install llama-index-vector-stores-chroma",
        )
        client = pytest.importorskip("chromadb").EphemeralClient()
        space = {"hnsw": {"space": "cosine"}}
        collection = client.create_collection(str(uuid4()), configuration=space)
        return chroma.ChromaVectorStore(chroma_collection=collection)
    client = QdrantClient(":memory:")
    if kind == "qdrant unnamed":
        client.create_collection(
            "docs",
            vectors_config=models.VectorParams(size=dimension, distance=models.Distance.COSINE),
        )
    name = "my-vector" if kind == "qdrant named" else None
    # Without `index_doc_id=False` the local mode warns that it has no payload indexes.
    return QdrantVectorStore("docs", client=client, dense_vector_name=name, index_doc_id=False)


STORES = ["qdrant", "qdrant named", "qdrant unnamed", "faiss", "faiss map", "simple", "chroma"]


@pytest.fixture(params=STORES)
def store_kind(request):
    return request.param


@pytest.fixture
def question():
    return QUESTION


@pytest.fixture
def nodes():
    return make_nodes(REPEATED + DISTINCT + UNRELATED)


@pytest.fixture
def embed_model():
    return WordEmbedding(model_name="words")


@pytest.fixture
def new_model():
    return WordEmbedding


@pytest.fixture
def new_nodes():
    return make_nodes


@pytest.fixture
def llm():
    return MockLLM()


@pytest.fixture
def index_over():
    """Return a function that makes an index over a store, its model's log empty."""

    def build(store, nodes, embed_model):
        storage = StorageContext.from_defaults(vector_store=store)
        index = VectorStoreIndex(nodes, storage_context=storage, embed_model=embed_model)
        embed_model.forget()
        return index

    return build


@pytest.fixture
def build_index(index_over):
    """Return a function that makes an index over a store of a kind."""
    return lambda kind, nodes, embed_model: index_over(
        make_store(kind, embed_model.dimension), nodes, embed_model
    )


@pytest.fixture(autouse=True)
def nothing_told(monkeypatch):
    """What is logged once a process is logged once a test."""
    monkeypatch.setattr(vectors.missing_vectors, "seen", SeenFacts())


class Listener(BaseEventHandler):
    """Keeps the events that it hears of."""

    events: list = Field(default_factory=list)

    def handle(self, event, **kwargs):
        self.events.append(event)


@pytest.fixture
def listener():
    root = get_dispatcher()
    before = list(root.event_handlers)
    listener = Listener()
    root.add_event_handler(listener)
    yield listener
    root.event_handlers = before


@pytest.fixture
async def async_qdrant_index(nodes, embed_model):
    """An index that has an async client and no other."""
    client = AsyncQdrantClient(":memory:")
    store = QdrantVectorStore("docs", aclient=client, index_doc_id=False)
    index = VectorStoreIndex.from_vector_store(store, embed_model=embed_model)
    await index.ainsert_nodes(nodes)
    embed_model.forget()
    yield index
    await client.close()


@pytest.fixture(scope="session")
def random_model(tmp_path_factory):
    """Folder of a language model that answers at once, and nonsense."""
    pytest.importorskip("torch", reason="SIFTSynthesizer needs the extra answer")
    made = pytest.importorskip("tests.random_model", reason="is in the repository alone")
    return made.save_random_model(tmp_path_factory.mktemp("random_model"))
