"""Collections in which every question has documents of its own, asked through both frameworks."""

import asyncio
import gc
import re
import sys
from contextlib import asynccontextmanager, closing, contextmanager

import numpy as np
from langchain_core.embeddings import Embeddings
from langchain_qdrant import QdrantVectorStore as LangChainStore
from llama_index.core import VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers.no_text import NoText
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.utils import node_to_metadata_dict
from llama_index.vector_stores.qdrant import QdrantVectorStore as LlamaStore
from qdrant_client import AsyncQdrantClient, QdrantClient, models

from langchain_sift import SIFTRetriever as LangChainRetriever
from llama_index.postprocessor.sift import SIFTReranker
from llama_index.postprocessor.sift import SIFTRetriever as LlamaRetriever
from tests.sources.qdrant_rest import serving

N_QUESTIONS = 100
N_CANDIDATES = 20  # as many as each question has documents
N_CHOSEN = 5
D = 32
VECTOR_NAME = "text-dense"  # LlamaIndex's own
LLAMA_WAYS = ["LlamaIndex, SIFTReranker", "LlamaIndex, SIFTRetriever"]
CHAIN_WAYS = ["LangChain, SIFTRetriever", "LangChain, SIFTRetriever with async client"]
WAYS = [*LLAMA_WAYS, *CHAIN_WAYS]


def question(number):
    return f"question {number}"


def number_of(text):
    """Return the number of the question that a question or a document's text is of."""
    return int(re.search(r"\d+", text)[0])


def unit_rows(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


# Neighbours of a centre have cosines of about .8 with it, other centres' at most .7.
CENTRES = unit_rows(np.random.default_rng(0).standard_normal((N_QUESTIONS, D)))
VECTORS = unit_rows(
    CENTRES[:, None]
    + 0.1 * np.random.default_rng(1).standard_normal((N_QUESTIONS, N_CANDIDATES, D))
)


def vector_of(text):
    return CENTRES[number_of(text)].tolist()


class LlamaEmbedding(BaseEmbedding):
    """Gives each question its centre; texts are not to be embedded again."""

    def _get_query_embedding(self, query):
        return vector_of(query)

    async def _aget_query_embedding(self, query):
        await asyncio.sleep(0)  # lets other queries in between
        return vector_of(query)

    def _get_text_embedding(self, text):
        raise AssertionError("embedded again: " + text)


class ChainEmbeddings(Embeddings):
    """The same for LangChain, whose store embeds one text of its own to learn the dimension."""

    def embed_query(self, text):
        return vector_of(text)

    def embed_documents(self, texts):
        assert texts == ["dummy_text"], f"embedded again: {texts}"
        return [[0.0] * D]


def document_id(number, i):
    return f"00000000-0000-4000-8000-{100 * number + i:012d}"


def points(vector_name, payload):
    """Return the points of every question; `payload` is called with question and document."""
    return [
        models.PointStruct(
            id=document_id(number, i),
            vector={vector_name: vector.tolist()} if vector_name else vector.tolist(),
            payload=payload(number, i),
        )
        for number, vectors in enumerate(VECTORS)
        for i, vector in enumerate(vectors)
    ]


def text_of(number, i):
    return f"of question {number}, document {i}"


def llama_payload(number, i):
    node = TextNode(id_=document_id(number, i), text=text_of(number, i), metadata={"i": i})
    return node_to_metadata_dict(node, remove_text=False)


def chain_payload(number, i):
    return {"page_content": text_of(number, i), "metadata": {"i": i}}


SIZE = models.VectorParams(size=D, distance=models.Distance.COSINE)
COLLECTIONS = {"llama": (VECTOR_NAME, llama_payload), "chain": ("", chain_payload)}


def filled(client):
    """Return a local client after giving it a collection a framework."""
    for name, (vector_name, payload) in COLLECTIONS.items():
        client.create_collection(name, {vector_name: SIZE} if vector_name else SIZE)
        client.upsert(name, points(vector_name, payload))
    return client


async def afilled(client):
    """Return an async local client after giving it the same."""
    for name, (vector_name, payload) in COLLECTIONS.items():
        await client.create_collection(name, {vector_name: SIZE} if vector_name else SIZE)
        await client.upsert(name, points(vector_name, payload))
    return client


@contextmanager
def served():
    """Yield a REST server of both collections."""
    with closing(filled(QdrantClient(":memory:"))) as local, serving(local) as server:
        yield server


@asynccontextmanager
async def asking(way, url):
    """Yield an async function from a question to the texts of its answer."""
    options = {"url": url, "timeout": 300, "check_compatibility": False}
    aclient = AsyncQdrantClient(**options)
    try:
        if way in LLAMA_WAYS:
            yield llama_ask(way, aclient)
        else:
            with closing(QdrantClient(**options)) as client:
                yield chain_ask(client, aclient if way == CHAIN_WAYS[1] else None)
    finally:
        await aclient.close()


@asynccontextmanager
async def asking_locally(way):
    """Yield what `asking` does, over Qdrant's local mode without a server between."""
    aclient = await afilled(AsyncQdrantClient(":memory:"))
    try:
        if way in LLAMA_WAYS:
            yield llama_ask(way, aclient)
        else:
            with closing(filled(QdrantClient(":memory:"))) as client:
                yield chain_ask(client, aclient if way == CHAIN_WAYS[1] else None)
    finally:
        await aclient.close()


def llama_ask(way, aclient):
    store = LlamaStore("llama", aclient=aclient, index_doc_id=False)
    index = VectorStoreIndex.from_vector_store(store, embed_model=LlamaEmbedding(model_name="own"))
    if way == LLAMA_WAYS[0]:
        retriever = index.as_retriever(similarity_top_k=N_CANDIDATES)
        rerankers = [SIFTReranker(top_n=N_CHOSEN)]
    else:
        retriever = LlamaRetriever.from_index(index, top_n=N_CHOSEN, candidates=N_CANDIDATES)
        rerankers = []
    engine = RetrieverQueryEngine(retriever, NoText(llm=MockLLM()), node_postprocessors=rerankers)

    async def ask(text):
        response = await engine.aquery(text)
        return [node.text for node in response.source_nodes]

    return ask


def chain_ask(client, aclient):
    retriever = LangChainRetriever(
        vectorstore=LangChainStore(client, "chain", embedding=ChainEmbeddings()),
        k=N_CHOSEN,
        fetch_k=N_CANDIDATES,
        async_client=aclient,
    )

    async def ask(text):
        return [document.page_content for document in await retriever.ainvoke(text)]

    return ask


async def outcomes(ask, texts):
    """Return the answer or the exception of every question, all asked at once."""
    return await asyncio.gather(*(ask(text) for text in texts), return_exceptions=True)


def kept_blocks():
    """Return how many blocks of memory Python's objects take, after collections.

    Every object takes at least one. Unlike tracemalloc this costs nothing.
    """
    gc.collect()
    gc.collect()  # what finalizers let go of
    return sys.getallocatedblocks()
