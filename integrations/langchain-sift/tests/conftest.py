"""Real stores over a deterministic model that counts how often it is asked."""

import hashlib
import threading
import time
import warnings
from uuid import uuid4

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore
from langchain_qdrant import QdrantVectorStore
from langchain_qdrant.sparse_embeddings import SparseEmbeddings, SparseVector
from qdrant_client import models

from langchain_sift import vectors as vectors_module
from sift_core.plugins import SeenFacts

TEXTS = [  # the first four say the same; so do their embeddings, or nearly
    "plants make sugar from light",
    "Plants make sugar from light",
    "PLANTS make sugar from light",
    "plants make sugar from light daily",
    "chlorophyll in plants absorbs red light and blue light to make sugar",
    "carbon dioxide enters the leaves that plants make sugar in",
    "roots take up the water that plants make sugar from",
    "sugar is stored as starch in potatoes",
    "Müller trinkt grünen Tee in Zürich",
    "日本 の 植物 は 光合成 を する 🌱",
    "stars fuse hydrogen into helium",
    "the bank raised its interest rates",
]
QUESTION = "how do plants make sugar"
DIMENSION = 64
LONG = 900  # tokens; they take a minute with a `TokenCounter`


class HashingEmbeddings(Embeddings):
    """Sums one fixed random direction a word; counts texts and calls."""

    def __init__(self):
        self.queries = 0
        self.document_batches = []

    def embed_query(self, text):
        self.queries += 1
        return self._embed(text)

    def embed_documents(self, texts):
        self.document_batches.append(len(texts))
        return [self._embed(text) for text in texts]

    def _embed(self, text):
        total = sum(self._direction(word) for word in text.lower().split())
        return (total / np.linalg.norm(total)).tolist()

    def _direction(self, word):
        seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "little")
        return np.random.default_rng(seed).normal(size=DIMENSION)


class WordCountEmbeddings(SparseEmbeddings):
    """A sparse model: one index a word."""

    def embed_query(self, text):
        indices = sorted(
            {int(hashlib.sha256(w.encode()).hexdigest()[:6], 16) for w in text.split()}
        )
        return SparseVector(indices=indices, values=[1.0] * len(indices))

    def embed_documents(self, texts):
        return [self.embed_query(text) for text in texts]


class TextOnlyStore(VectorStore):
    """A store that keeps its vectors to itself: the abstract methods and nothing more."""

    def __init__(self, inner):
        self._inner = inner

    @property
    def embeddings(self):
        return self._inner.embeddings

    def similarity_search(self, query, k=4, filter=None):
        return self._inner.similarity_search(query, k=k, filter=filter)

    @classmethod
    def from_texts(cls, texts, embedding, metadatas=None, **kwargs):
        return cls(InMemoryVectorStore.from_texts(texts, embedding, metadatas, **kwargs))


@pytest.fixture(autouse=True)
def nothing_warned(monkeypatch):
    """What is logged once a process is logged once a test."""
    monkeypatch.setattr(vectors_module.missing_vectors, "seen", SeenFacts())


@pytest.fixture
def embeddings():
    return HashingEmbeddings()


@pytest.fixture
def documents():
    return [
        Document(
            id=f"00000000-0000-0000-0000-{i:012d}",  # Qdrant takes UUIDs and integers alone
            page_content=text,
            metadata={"number": i, "half": "first" if i < 6 else "second", "tags": ["a", "b"]},
        )
        for i, text in enumerate(TEXTS)
    ]


@pytest.fixture
def question():
    return QUESTION


@pytest.fixture
def faiss_class():
    with warnings.catch_warnings():
        # Said once on import, and every user of this store has seen it.
        warnings.filterwarnings(
            "ignore", "`langchain-community` is being sunset", DeprecationWarning
        )
        from langchain_community.vectorstores.faiss import FAISS
    return FAISS


@pytest.fixture
def make_qdrant(embeddings):
    stores = []

    def make(documents, **options):
        names = {"location": ":memory:", "collection_name": "docs", **options}
        if documents:
            ids = [document.id for document in documents]
            store = QdrantVectorStore.from_documents(documents, embeddings, ids=ids, **names)
        else:
            store = QdrantVectorStore.construct_instance(
                embedding=embeddings,
                collection_name=names["collection_name"],
                client_options={"location": names["location"]},
            )
        stores.append(store)
        return store

    yield make
    for store in stores:
        store.client.close()


@pytest.fixture
def make_faiss(embeddings, faiss_class):
    def make(documents, **options):
        ids = [document.id for document in documents]
        first = documents or [Document(id="gone", page_content="gone")]
        store = faiss_class.from_documents(first, embeddings, ids=ids or ["gone"], **options)
        if not documents:
            store.delete(["gone"])
        return store

    return make


@pytest.fixture
def make_in_memory(embeddings):
    def make(documents):
        store = InMemoryVectorStore(embeddings)
        store.add_documents(documents)
        return store

    return make


@pytest.fixture
def make_text_only(make_in_memory):
    return lambda documents: TextOnlyStore(make_in_memory(documents))


@pytest.fixture
def make_chroma(embeddings):
    chroma = pytest.importorskip("langchain_chroma", reason="pip install langchain-chroma")
    client = chroma.vectorstores.chromadb.EphemeralClient()

    def make(documents):
        space = {"hnsw": {"space": "cosine"}}
        store = chroma.Chroma(
            str(uuid4()), embeddings, client=client, collection_configuration=space
        )
        if documents:  # of which Chroma takes no list
            store.add_texts(
                [each.page_content for each in documents],
                [each.metadata for each in documents],
                [each.id for each in documents],
            )
        return store

    return make


@pytest.fixture(params=["qdrant", "faiss", "in_memory", "chroma", "text_only"])
def make_store(request):
    """Each kind of store in turn, as a function of documents."""
    return request.getfixturevalue(f"make_{request.param}")


@pytest.fixture(params=["qdrant", "faiss", "in_memory", "chroma"])
def make_vector_store(request):
    """Each store that gives its vectors back."""
    return request.getfixturevalue(f"make_{request.param}")


@pytest.fixture
def first_half():
    """A filter for documents of the first half, as each store spells it."""
    match = models.MatchValue(value="first")
    condition = models.FieldCondition(key="metadata.half", match=match)
    spellings = {
        "QdrantVectorStore": models.Filter(must=[condition]),
        "FAISS": {"half": "first"},
        "Chroma": {"half": "first"},
    }
    return lambda store: spellings.get(
        type(store).__name__, lambda document: document.metadata["half"] == "first"
    )


@pytest.fixture
def sparse_embeddings():
    return WordCountEmbeddings()


@pytest.fixture
def off_the_loop(monkeypatch):
    """A function that puts another in its place, which may not run in the event loop's thread."""

    def watch(owner, name):
        function = getattr(owner, name)

        def watched(*arguments, **options):
            assert threading.current_thread() is not threading.main_thread()
            return function(*arguments, **options)

        monkeypatch.setattr(owner, name, watched)

    return watch


@pytest.fixture(scope="session")
def random_model(tmp_path_factory):
    """Folder of a language model that answers at once, and nonsense."""
    pytest.importorskip("torch", reason="needs sift-rerank[fine-tune]")
    made = pytest.importorskip("tests.random_model", reason="is in the repository alone")
    return made.save_random_model(tmp_path_factory.mktemp("random_model"))


@pytest.fixture(scope="session")
def language_model(random_model):
    answering = pytest.importorskip("sift_core.answering", reason="needs sift-rerank[fine-tune]")
    return answering.LanguageModel.from_pretrained(random_model, device="cpu", dtype="float32")


class TokenCounter:
    """A stopping criterion that counts the tokens of a long answer and never stops it.

    It takes its time, so that a busy test comes before the answer's end.
    """

    def __init__(self):
        self.n_tokens = 0

    def __call__(self, input_ids, scores, **_):
        self.n_tokens += 1
        time.sleep(0.05)
        return input_ids.new_zeros(len(input_ids), dtype=bool)

    @property
    def is_cut_short(self):
        return self.n_tokens < LONG

    @property
    def options(self):
        """What makes a model write so much, and be counted."""
        return {"max_new_tokens": LONG, "min_new_tokens": LONG, "stopping_criteria": [self]}


@pytest.fixture
def counter():
    return TokenCounter()
