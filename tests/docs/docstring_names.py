"""Objects that examples in docstrings may use without making them, as a reader has them at hand.

An example may also use the public names of its package and of `sift_core` without importing them.
"""

import functools
import tempfile
from pathlib import Path

import numpy as np

import sift_core
from sift_core import InMemorySource, Query
from sift_core.testing import HashingEmbedder

TEXTS = [
    "The ferry sails at nine.",
    "The ferry sails at nine!",
    "A ticket for the ferry costs four crowns.",
    "The museum opens at ten.",
]
IDS = ["timetable", "copy", "prices", "museum"]
QUESTION = "When does the ferry sail, and what does a ticket cost?"


@functools.cache
def embedder():
    return HashingEmbedder(dimension=256)


@functools.cache
def source():
    model = embedder()
    return InMemorySource(
        model.embed_documents(TEXTS), TEXTS, document_ids=IDS, embedder_name=model.name
    )


@functools.cache
def query():
    return Query(text=QUESTION, embedding=embedder().embed_query(QUESTION))


@functools.cache
def pool():
    return source().fetch(query(), n_candidates=4)


def folder():
    """A new folder with two files."""
    made = Path(tempfile.mkdtemp(prefix="sift-examples-", dir=Path.cwd()))
    (made / "ferry.md").write_text("# Ferry\n\nThe ferry sails at nine.\n", encoding="utf-8")
    (made / "questions.txt").write_text(f"{QUESTION}\n", encoding="utf-8")
    return made


@functools.cache
def language_model():
    """The bundled model."""
    from sift_core.answering import LanguageModel

    return LanguageModel.from_pretrained()


@functools.cache
def engine():
    from sift_core.answering import AnswerEngine

    return AnswerEngine(
        language_model=language_model(),
        source=source(),
        embedder=embedder(),
        options=sift_core.ChoiceOptions(n_select=2),
        generation={"max_new_tokens": 8},
    )


@functools.cache
def llama_nodes():
    from llama_index.core.schema import NodeWithScore, TextNode

    vectors = embedder().embed_documents(TEXTS).tolist()
    return [
        NodeWithScore(node=TextNode(id_=one, text=text, embedding=vector), score=None)
        for one, text, vector in zip(IDS, TEXTS, vectors, strict=True)
    ]


@functools.cache
def llama_model():
    from llama_index.core.base.embeddings.base import BaseEmbedding

    class Hashing(BaseEmbedding):
        def _get_text_embedding(self, text):
            return embedder().embed_query(text).tolist()

        def _get_query_embedding(self, query):
            return embedder().embed_query(query).tolist()

        async def _aget_query_embedding(self, query):
            return self._get_query_embedding(query)

    return Hashing()


@functools.cache
def index():
    from llama_index.core import VectorStoreIndex
    from llama_index.core.schema import TextNode

    nodes = [TextNode(id_=one, text=text) for one, text in zip(IDS, TEXTS, strict=True)]
    return VectorStoreIndex(nodes, embed_model=llama_model())


@functools.cache
def embeddings():
    from langchain_core.embeddings import Embeddings

    class Hashing(Embeddings):
        def embed_query(self, text):
            return embedder().embed_query(text).tolist()

        def embed_documents(self, texts):
            return embedder().embed_documents(texts).tolist()

    return Hashing()


@functools.cache
def vectorstore():
    from langchain_core.vectorstores import InMemoryVectorStore

    return InMemoryVectorStore.from_texts(TEXTS, embeddings(), ids=IDS)


@functools.cache
def haystack_documents():
    from haystack import Document

    vectors = embedder().embed_documents(TEXTS).tolist()
    return [
        Document(id=one, content=text, embedding=vector)
        for one, text, vector in zip(IDS, TEXTS, vectors, strict=True)
    ]


SHARED = {
    "np": lambda: np,
    "texts": lambda: list(TEXTS),
    "question": lambda: QUESTION,
    "embedder": embedder,
    "source": source,
    "query": query,
    "pool": pool,
    "folder": folder,
    "language_model": language_model,
    "engine": engine,
}
OF_FRAMEWORKS = {
    "llama_index.postprocessor.sift": {"nodes": llama_nodes, "index": index},
    "langchain_sift": {"vectorstore": vectorstore, "embeddings": embeddings},
    "haystack_integrations.components.rankers.sift": {"documents": haystack_documents},
}
