"""Real pipelines and stores over a deterministic model."""

import pytest
from haystack import Document, component

from sift_core.testing import HashingEmbedder

COPIES = [f"bees find home by the sun{end}" for end in ("", ".", "!", " again")]  # nearly the same
TEXTS = [
    *COPIES,
    "the sun stands low when bees return home in the evening",
    "landmarks near the hive help bees to find their home",
    "a dance tells other bees where flowers are",
    "honey is stored in wax",
    "Müller trinkt grünen Tee in Zürich",
    "蜂 は 太陽 を 見る 🌱",
    "stars fuse hydrogen into helium",
    "the bank raised its interest rates",
]
QUESTION = "how do bees find their home"


def embedding_of(text):
    return HashingEmbedder().embed_query(text).tolist()


@component
class TextEmbedder:
    """A component with no `run_async`; counts its calls."""

    def __init__(self):
        self.n_texts = 0

    @component.output_types(embedding=list[float])
    def run(self, text: str):
        self.n_texts += 1
        return {"embedding": embedding_of(text)}


@component
class DocumentEmbedder:
    """Writes into what it is given, as careless components do; counts its documents."""

    def __init__(self):
        self.n_texts = 0

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]):
        self.n_texts += len(documents)
        for document in documents:
            object.__setattr__(document, "embedding", embedding_of(document.content))
        return {"documents": documents}


@pytest.fixture
def question():
    return QUESTION


@pytest.fixture
def query_embedding():
    return embedding_of(QUESTION)


@pytest.fixture
def bare_documents():
    """Without embeddings."""
    return [Document(content=text, meta={"number": i}) for i, text in enumerate(TEXTS)]


@pytest.fixture
def documents():
    """With embeddings and no scores."""
    return [
        Document(content=text, meta={"number": i}, embedding=embedding_of(text))
        for i, text in enumerate(TEXTS)
    ]


@pytest.fixture
def text_embedder():
    return TextEmbedder()


@pytest.fixture
def document_embedder():
    return DocumentEmbedder()
